#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "client/cli/published.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kSwitchPositionals[] = {
    {.name = "NAME@VERSION", .help = "such as m@2: from now on m/w is m@2/w"},
};

absl::Status RunSwitch(Invocation& call) {
  absl::StatusOr<VersionedPrefix> wanted = ParseVersion(call.args.Positional(0));
  if (!wanted.ok()) return WithExit(ExitCode::kUsage, wanted.status());
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  GEMMD_ASSIGN_OR_RETURN(client::VersionSwitch switched,
                         client.SwitchVersion(wanted->name, wanted->version));
  call.out.Result(SwitchDocument(*wanted, switched), SwitchText(*wanted, switched));
  return absl::OkStatus();
}

}  // namespace

const Command kSwitchCommand = {
    .name = "switch",
    .summary = "make a version of published weights the current one",
    .details =
        "All names below NAME mean the new version at once, for sessions that look them up from "
        "now on. A session that holds buffers of another version keeps to that one until it lets "
        "go of them. Take the old version away when nobody holds it:\n\n"
        "  gemmctl unpublish 'm@1/*' --unless-held",
    .positionals = kSwitchPositionals,
    .run = RunSwitch};

}  // namespace gemmd::cli
