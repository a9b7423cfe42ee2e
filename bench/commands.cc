#include "bench/commands.h"

#include "client/cli/commands.h"

namespace gemmd::bench {

const cli::CommandTable& Commands() {
  static constexpr const cli::Command* kCommands[] = {
      &kLoadCommand,          &kFloorCommand,     &kServingCommand,  &kSoakCommand,
      &cli::kVersionCommand,  &cli::kHelpCommand, &cli::kManCommand, &cli::kCompletionCommand,
      &cli::kCompleteCommand, &kEchoPeerCommand,
  };
  static const cli::CommandTable kTable = {
      .global_flags = cli::GlobalFlags(),
      .commands = kCommands,
      .program = "gemmd_bench",
      .purpose = "gemmd_bench measures a gemmd server, beside bare parts in the same run."};
  return kTable;
}

}  // namespace gemmd::bench
