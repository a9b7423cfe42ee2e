#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

constexpr absl::string_view kKinds[] = {"devices", "kernels", "published", "sessions", "tensors"};
constexpr Positional kNamesPositionals[] = {
    {.name = "KIND", .help = "of what", .kind = ValueKind::kChoice, .choices = kKinds},
    {.name = "FILE", .help = "whose tensors", .kind = ValueKind::kFile, .required = false},
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

std::vector<std::string> ServerNames(const Args& args, absl::string_view kind) {
  client::ClientOptions options = ClientOptionsOf(args, CallKind::kLookUp);
  if (!args.Given("timeout")) options.connect_timeout = options.default_timeout = kPatience;
  absl::StatusOr<client::Client> client = client::Client::Connect(args.Text("server"), options);
  if (!client.ok()) return {};
  if (kind == "devices") return NamesOf(client->ListDevices());
  if (kind == "kernels") return NamesOf(client->ListKernels());
  if (kind == "sessions") return NamesOf(client->ListSessions());
  std::vector<std::string> names;
  absl::StatusOr<std::vector<v1::Buffer>> buffers = client->ListPublished();
  if (!buffers.ok()) return names;
  for (const v1::Buffer& buffer : *buffers) names.push_back(buffer.published_name());
  return names;
}

absl::Status RunNames(Invocation& call) {
  const std::string kind = call.args.Positional(0);
  std::vector<std::string> names =
      kind == "tensors" ? TensorNames(call.args.Positional(1)) : ServerNames(call.args, kind);
  std::erase_if(names, [](const std::string& name) { return !IsPlain(name); });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) call.out.Text(absl::StrCat(name, "\n"));
  return absl::OkStatus();
}

}  // namespace

// For completion: whoever does not answer, or refuses, has no names.
const Command kNamesCommand = {.name = "names",
                               .summary = "print what a server or a file can be asked for",
                               .positionals = kNamesPositionals,
                               .hidden = true,
                               .run = RunNames};

}  // namespace gemmd::cli
