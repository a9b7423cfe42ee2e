#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/published.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kUnpublishPositionals[] = {
    {.name = "NAME",
     .help = "as 'gemmctl upload' published it, or a pattern such as 'm/*'",
     .names = Names::kPublished},
};
constexpr Flag kUnpublishFlags[] = {
    {.name = "unless-held",
     .help = "not what a session holds, nor others of a version of which it holds one"},
    {.name = "dry-run", .help = "say what would lose its name, and leave all as it is"},
};

// What goes: one name as it stands, or those that a pattern matches now.
absl::StatusOr<std::vector<std::string>> NamesOf(client::Client& client, const std::string& given) {
  GEMMD_ASSIGN_OR_RETURN(std::vector<v1::Buffer> buffers, PublishedLike(client, given));
  std::vector<std::string> names;
  for (const v1::Buffer& buffer : buffers) names.push_back(buffer.published_name());
  return names;
}

absl::Status RunUnpublish(Invocation& call) {
  const std::string given = call.args.Positional(0);
  const bool dry = call.args.On("dry-run"), pattern = IsPattern(given);
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  absl::StatusOr<std::vector<std::string>> names =
      pattern || dry ? NamesOf(client, given) : std::vector<std::string>{given};
  if (!names.ok()) return names.status();
  const std::string verb = dry ? "would unpublish " : "unpublished ";
  std::string text;
  Json gone = Json::array();
  if (dry) {
    gone = *names;
    for (const std::string& name : *names) absl::StrAppend(&text, verb, name, "\n");
  } else {
    GEMMD_ASSIGN_OR_RETURN(client::Session session,
                           client.OpenSession({.label = "gemmctl unpublish"}));
    for (const std::string& name : *names) {
      absl::Status status =
          call.args.On("unless-held") ? session.UnpublishUnlessHeld(name) : session.Unpublish(name);
      // Somebody else was faster with a name of the list.
      if (pattern && status.code() == absl::StatusCode::kNotFound) continue;
      if (pattern && !status.ok()) {
        status =
            absl::Status(status.code(), absl::StrCat(status.message(), "; ", gone.size(), " of ",
                                                     names->size(), " names are gone"));
      }
      if (!status.ok()) return status;
      gone.push_back(name);
      absl::StrAppend(&text, verb, name, "\n");
    }
  }
  Json document = {{dry ? "would_unpublish" : "unpublished", gone}};
  if (!pattern && !dry) document = {{"unpublished", given}};
  call.out.Result(document, text);
  return absl::OkStatus();
}

}  // namespace

const Command kUnpublishCommand = {
    .name = "unpublish",
    .summary = "take a published buffer's name away, or all names that a pattern matches",
    .details =
        "Its memory is freed once nobody who found it uses it any more. Quote a pattern, so that "
        "the shell leaves it alone; * takes slashes, too.",
    .positionals = kUnpublishPositionals,
    .flags = kUnpublishFlags,
    .run = RunUnpublish};

}  // namespace gemmd::cli
