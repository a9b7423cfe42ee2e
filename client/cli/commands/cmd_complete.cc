#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/args/completion.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/files/mapped_file.h"
#include "client/cli/files/safetensors.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "gemmd/v1/device_service.pb.h"
#include "gemmd/v1/session_service.pb.h"

namespace gemmd::cli {
namespace {

// Somebody waits for the shell.
constexpr absl::Duration kPatience = absl::Milliseconds(300);

constexpr Positional kCompletePositionals[] = {
    {.name = "WORDS", .help = "of the line, a newline behind each"},
};

// A shell puts them on its line as they are.
bool IsPlain(absl::string_view name) {
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("._/:@+-", c);
  });
}

std::vector<std::string> TensorNames(const std::string& path) {
  std::vector<std::string> names;
  absl::StatusOr<files::MappedFile> file = files::MappedFile::Open(path);
  if (!file.ok()) return names;
  absl::StatusOr<files::SafetensorsView> view = files::ParseSafetensors(file->bytes());
  if (!view.ok()) return names;
  for (const files::SafetensorsEntry& tensor : view->tensors) names.push_back(tensor.name);
  return names;
}

template <typename Things>
std::vector<std::string> NamesOf(const absl::StatusOr<Things>& things) {
  std::vector<std::string> names;
  if (!things.ok()) return names;
  for (const auto& one : *things) names.push_back(one.name());
  return names;
}

// Of the server that the line names.
std::vector<std::string> ServerNames(Invocation& call, Names kind,
                                     const std::vector<std::string>& words) {
  std::vector<const char*> line = {"complete", "words"};
  const std::string usual = call.args.Text("server");
  bool named = false;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    for (absl::string_view flag : {"--server", "--token-file", "--tls-"}) {
      if (!absl::StartsWith(words[i], flag)) continue;
      named |= flag == "--server";
      line.push_back(words[i].c_str());
      if (!absl::StrContains(words[i], '=')) line.push_back(words[i + 1].c_str());
    }
  }
  if (!named) line.insert(line.end(), {"--server", usual.c_str()});
  absl::StatusOr<Args> args = ParseArgs(call.table, line);
  if (!args.ok()) return {};
  client::ClientOptions options = ClientOptionsOf(*args, CallKind::kLookUp);
  options.connect_timeout = options.default_timeout = kPatience;
  absl::StatusOr<client::Client> client = client::Client::Connect(args->Text("server"), options);
  if (!client.ok()) return {};
  if (kind == Names::kDevices) return NamesOf(client->ListDevices());
  if (kind == Names::kKernels) return NamesOf(client->ListKernels());
  if (kind == Names::kSessions) return NamesOf(client->ListSessions());
  std::vector<std::string> names;
  absl::StatusOr<std::vector<v1::Buffer>> buffers = client->ListPublished();
  if (!buffers.ok()) return names;
  for (const v1::Buffer& buffer : *buffers) names.push_back(buffer.published_name());
  return names;
}

absl::Status RunComplete(Invocation& call) {
  const std::string text = call.args.Positional(0);
  const std::vector<std::string> words = absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
  const std::string& typed = words.back();
  Completion found = CompletionOf(call.table, words);
  std::vector<std::string> names;
  if (found.names != Names::kNone) names = ServerNames(call, found.names, words);
  if (const size_t colon = typed.find(':'); found.files && colon != std::string::npos) {
    const size_t path = found.prefix.size();
    if (colon > path) names = TensorNames(typed.substr(path, colon - path));
    if (!names.empty()) found.files = false;
    found.prefix = typed.substr(0, colon + 1);
  }
  // A weight that is published, as an operand.
  if (found.files && words.front() == "matmul" && absl::StartsWith(typed, "@")) {
    names = ServerNames(call, Names::kPublished, words);
    found.files = false;
    found.prefix = "@";
  }
  std::erase_if(names, [](const std::string& name) { return !IsPlain(name); });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    std::string word = absl::StrCat(found.prefix, name);
    if (absl::StartsWith(word, typed)) found.offers.push_back({std::move(word), ""});
  }
  call.out.Text(found.files ? "files\n" : "words\n");
  for (const auto& [word, help] : found.offers) call.out.Text(absl::StrCat(word, "\t", help, "\n"));
  return absl::OkStatus();
}

}  // namespace

// What the scripts of `completion` ask. Whoever does not answer, or refuses, has no names.
const Command kCompleteCommand = {.name = "complete",
                                  .summary = "print what may stand for the last word of a line",
                                  .positionals = kCompletePositionals,
                                  .hidden = true,
                                  .run = RunComplete};

}  // namespace gemmd::cli
