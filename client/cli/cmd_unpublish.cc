#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"

namespace gemmd::cli {
namespace {

constexpr Positional kPositionals[] = {
    {.name = "NAME", .help = "as 'gemmctl upload' published it"},
};

absl::Status RunUnpublish(Invocation& call) {
  const std::string target = call.args.Text("server");
  const std::string name = call.args.Positional(0);
  absl::StatusOr<client::Client> client = Connect(call.args, CallKind::kLookUp);
  if (!client.ok()) return client.status();
  absl::StatusOr<client::Session> session = client->OpenSession({.label = "gemmctl unpublish"});
  if (!session.ok()) return Explained(session.status(), target);
  absl::Status status = session->Unpublish(name);
  if (!status.ok()) return Explained(status, target);
  call.out.Result({{"unpublished", name}}, absl::StrCat("unpublished ", name, "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kUnpublishCommand = {
    .name = "unpublish",
    .summary = "take a published buffer's name away",
    .details = "Its memory is freed once nobody who found it uses it any more.",
    .positionals = kPositionals,
    .run = RunUnpublish};

}  // namespace gemmd::cli
