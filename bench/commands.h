// Every command of gemmd_bench. A new one: cmd_x.cc defining kXCommand, a line here, a line in
// commands.cc, one in CMake.

#pragma once

#include "client/cli/args/command.h"

namespace gemmd::bench {

extern const cli::Command kEchoPeerCommand;
extern const cli::Command kFloorCommand;
extern const cli::Command kLoadCommand;
extern const cli::Command kServingCommand;
extern const cli::Command kSoakCommand;

// The table that parsing, help and completion are made from. Help, completion and version are
// gemmctl's.
const cli::CommandTable& Commands();

}  // namespace gemmd::bench
