#include "absl/strings/str_cat.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/help.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"

namespace gemmd::cli {
namespace {

constexpr Positional kHelpPositionals[] = {
    {.name = "TOPIC",
     .help = "a command, or exit-codes",
     .required = false,
     .names = Names::kCommands},
};

absl::Status RunHelp(Invocation& call) {
  const std::string topic = call.args.Positional(0);
  if (topic.empty()) {
    call.out.Text(OverviewHelp(call.table));
  } else if (topic == "exit-codes") {
    call.out.Text(ExitCodeHelp(call.table));
  } else if (const Command* command = call.table.Find(topic)) {
    call.out.Text(CommandHelp(call.table, *command));
  } else {
    return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(absl::StrCat(
                                          "there is no help on '", topic, "'; '",
                                          call.table.program, " help' lists the commands")));
  }
  return absl::OkStatus();
}

}  // namespace

const Command kHelpCommand = {.name = "help",
                              .summary = "explain a command, or the exit codes",
                              .positionals = kHelpPositionals,
                              .run = RunHelp};

}  // namespace gemmd::cli
