#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/connect.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

constexpr Positional kHealthPositionals[] = {
    {.name = "SERVICE",
     .help = "a device such as cpu:0; default: the daemon as a whole",
     .required = false,
     .names = Names::kDevices},
};

absl::Status RunHealth(Invocation& call) {
  const std::string target = call.args.Text("server");
  GEMMD_ASSIGN_OR_RETURN(client::Client client, Connect(call.args, CallKind::kLookUp));
  const std::string service = call.args.Positional(0);
  GEMMD_ASSIGN_OR_RETURN(client::Health health, client.CheckHealth(service));
  const bool serving = health == client::Health::kServing;
  const std::string name(client::Name(health));
  call.out.Result(
      {{"server", target}, {"service", service}, {"health", name}, {"serving", serving}},
      absl::StrCat(name, "\n"));
  if (serving) return absl::OkStatus();
  return WithExit(ExitCode::kCheckFailed,
                  absl::FailedPreconditionError(absl::StrCat(
                      service.empty() ? "the daemon" : service, " at ", target, " is ", name)));
}

}  // namespace

const Command kHealthCommand = {.name = "health",
                                .summary = "ask whether the daemon, or one device, takes work",
                                .details =
                                    "Exit code 0 when it is serving, 1 when it answers anything "
                                    "else, 4 when it does not answer.",
                                .positionals = kHealthPositionals,
                                .run = RunHealth};

}  // namespace gemmd::cli
