#include "absl/strings/str_cat.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kEndPositionals[] = {
    {.name = "SESSION", .help = "as 'gemmctl sessions' names it: s-17", .names = Names::kSessions},
};

absl::Status RunEnd(Invocation& call) {
  const std::string name = call.args.Positional(0);
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  const absl::Status ended = client.EndSession(name);
  if (!ended.ok()) return ended;
  call.out.Result({{"ended", name}}, absl::StrCat("ended ", name, "\n"));
  return absl::OkStatus();
}

}  // namespace

const Command kEndCommand = {
    .name = "end",
    .summary = "end a session of any tenant and free what it holds",
    .details =
        "For admins. Work of it that is under way finishes first; its owner's next call answers "
        "NOT_FOUND.",
    .positionals = kEndPositionals,
    .run = RunEnd};

}  // namespace gemmd::cli
