// gemmctl: the command line of gemmd.

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/cli/args/exit_code.h"
#include "client/cli/args/help.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"

// One caller at a time: few of gRPC's threads stay warm (server/grpc_threads/grpc_threads.h).
extern "C" {
int gemmd_default_grpc_threads = 2;
}

namespace gemmd::cli {
namespace {

// Nothing to tidy up: a file being written has no name yet, and the daemon frees the session of a
// client that is gone.
void ExitInterrupted(int) { _exit(static_cast<int>(ExitCode::kInterrupted)); }

int Run(std::vector<const char*> argv) {
  bool json = false;
  for (absl::string_view arg : argv) json |= arg == "--json";
  if (argv.empty() || argv[0] == absl::string_view("--help") ||
      argv[0] == absl::string_view("-h")) {
    Output(false, false).Text(OverviewHelp(Commands()));
    return static_cast<int>(argv.empty() ? ExitCode::kUsage : ExitCode::kOk);
  }
  if (argv[0] == absl::string_view("--version")) argv[0] = "version";
  absl::StatusOr<Args> args = ParseArgs(Commands(), argv);
  if (!args.ok()) {
    // --json is honoured even on a line that does not parse: whoever reads stdout expects a
    // document.
    Output(json, false).Error(args.status());
    return static_cast<int>(ExitCodeOf(args.status()));
  }
  Output out(args->On("json"), args->On("quiet"));
  if (args->On("help")) {
    out.Text(CommandHelp(Commands(), args->command()));
    return 0;
  }
  Invocation call{*args, out};
  const absl::Status status = args->command().run(call);
  if (!status.ok()) out.Error(status);
  return static_cast<int>(ExitCodeOf(status));
}

}  // namespace
}  // namespace gemmd::cli

int main(int argc, char** argv) {
  // A failed handshake is told by the command, not by lines of gRPC between; who wants them sets
  // it.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  std::signal(SIGPIPE, SIG_IGN);  // gRPC's sockets; `gemmctl ... | head` ends by a failed write
  std::signal(SIGINT, gemmd::cli::ExitInterrupted);
  std::signal(SIGTERM, gemmd::cli::ExitInterrupted);
  return gemmd::cli::Run(std::vector<const char*>(argv + 1, argv + argc));
}
