#include <limits.h>
#include <unistd.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"
#include "client/cli/run_program.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kActions[] = {"check"};
constexpr Positional kConfigPositionals[] = {
    {.name = "ACTION",
     .help = "what to do with it",
     .kind = ValueKind::kChoice,
     .choices = kActions},
    {.name = "FILE", .help = "the config file", .kind = ValueKind::kFile},
};
constexpr Flag kConfigFlags[] = {
    FileFlag(
        "gemmd", "PATH",
        "the daemon's binary; default: the one installed beside gemmctl, or the first on PATH"),
};

// Installed, the two lie in one folder; in a build tree under client/cli and server.
std::string FindDaemon() {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  if (length <= 0 || length == sizeof(self)) return "gemmd";
  std::string folder(self, length);
  folder.resize(folder.rfind('/'));
  for (const char* sibling : {"/gemmd", "/../../server/gemmd"}) {
    std::string path = folder + sibling;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "gemmd";
}

absl::Status RunConfig(Invocation& call) {
  const std::string file = call.args.Positional(1);
  const std::string daemon = call.args.Given("gemmd") ? call.args.Text("gemmd") : FindDaemon();
  // The daemon is the one judge of its config: what it accepts here it starts with.
  absl::StatusOr<ProgramEnd> finished = RunProgram({daemon, "--config", file, "--check"});
  if (!finished.ok()) return WithExit(ExitCode::kInternal, finished.status());
  const std::string written = finished->out + finished->error;
  const std::string text(absl::StripAsciiWhitespace(absl::StripPrefix(written, "gemmd: ")));
  switch (finished->exit_status) {
    case 0:
      call.out.Result({{"file", file}, {"valid", true}, {"message", text}},
                      absl::StrCat(text.empty() ? absl::StrCat(file, " is valid") : text, "\n"));
      return absl::OkStatus();
    case 2:
      call.out.Result({{"file", file}, {"valid", false}, {"message", text}}, "");
      return WithExit(ExitCode::kBadFile,
                      absl::InvalidArgumentError(absl::StrReplaceAll(text, {{"\n", "; "}})));
    case 127:
      return WithExit(ExitCode::kInternal,
                      absl::NotFoundError(absl::StrCat(
                          "cannot run '", daemon, "'; --gemmd says where the daemon's binary is")));
    default:
      return WithExit(ExitCode::kInternal,
                      absl::InternalError(absl::StrCat("'", daemon, " --check' ended with status ",
                                                       finished->exit_status, ": ", text)));
  }
}

}  // namespace

const Command kConfigCommand = {
    .name = "config",
    .summary = "check a config file as the daemon would read it",
    .details = "Runs 'gemmd --config FILE --check'; no daemon needs to be up.",
    .positionals = kConfigPositionals,
    .flags = kConfigFlags,
    .run = RunConfig};

}  // namespace gemmd::cli
