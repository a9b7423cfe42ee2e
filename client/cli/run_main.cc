#include "client/cli/run_main.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/help.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/args/terminal.h"
#include "client/cli/connect.h"
#include "client/cli/files/new_file.h"
#include "client/cpp/default_target.h"

namespace gemmd::cli {
namespace {

// The daemon frees the session of a client that is gone.
void ExitInterrupted(int) {
  LeaveFullScreen();
  files::RemovePartialFiles();
  _exit(static_cast<int>(ExitCode::kInterrupted));
}

void HandleSignals() {
  std::signal(SIGPIPE, SIG_IGN);  // gRPC's sockets; `gemmctl ... | head` ends by a failed write
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f: likewise
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    // One that is ignored stays so: nohup.
    if (std::signal(number, ExitInterrupted) == SIG_IGN) std::signal(number, SIG_IGN);
  }
}

// A descriptor that was closed would go to the next socket or file, and what is printed into it.
// This one refuses the use that its number is for, so that the loss is told.
void OpenStandardDescriptors() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

// The exit status, `status` told and all that was printed written.
int End(const absl::Status& status, Output& out) {
  if (!status.ok()) out.Error(status);
  const absl::Status written = out.written();
  if (status.ok() && !written.ok()) out.Error(written);
  return static_cast<int>(ExitCodeOf(status.ok() ? written : status));
}

// True when the line says which server is meant.
bool NamesServer(const std::vector<const char*>& argv) {
  for (absl::string_view arg : argv) {
    if (arg == "--") return false;
    if (arg == "--server" || absl::StartsWith(arg, "--server=")) return true;
  }
  return false;
}

int Run(const CommandTable& table, std::vector<const char*> argv) {
  bool json = false;
  for (absl::string_view arg : argv) json |= arg == "--json";
  if (argv.empty() || argv[0] == absl::string_view("--help") ||
      argv[0] == absl::string_view("-h")) {
    Output out(false, false, table.program);
    out.Text(OverviewHelp(table));
    const int written = End(absl::OkStatus(), out);
    return argv.empty() ? static_cast<int>(ExitCode::kUsage) : written;
  }
  if (argv[0] == absl::string_view("--version")) argv[0] = "version";
  const std::string server = absl::StrCat("--server=", client::DefaultTarget());
  if (!NamesServer(argv)) argv.insert(argv.begin(), server.c_str());
  absl::StatusOr<Args> args = ParseArgs(table, argv);
  if (!args.ok()) {
    // --json is honoured even on a line that does not parse: whoever reads stdout expects a
    // document.
    Output out(json, false, table.program);
    return End(args.status(), out);
  }
  Output out(args->On("json"), args->On("quiet"), table.program);
  if (args->On("help")) {
    out.Text(CommandHelp(table, args->command()));
    return End(absl::OkStatus(), out);
  }
  Invocation call{*args, out, table};
  return End(Explained(args->command().run(call), args->Text("server")), out);
}

}  // namespace

int RunMain(const CommandTable& table, int argc, char** argv) {
  // A failed handshake is told by the command, not by lines of gRPC between; who wants them sets
  // it.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  OpenStandardDescriptors();
  HandleSignals();
  return Run(table, std::vector<const char*>(argv + 1, argv + argc));
}

}  // namespace gemmd::cli
