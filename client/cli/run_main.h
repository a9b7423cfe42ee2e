// main() of a program that is a table of commands: gemmctl, gemmd_bench.

#pragma once

#include "client/cli/args/command.h"

namespace gemmd::cli {

// Parses, runs the command and tells its error. Returns the exit status (ExitCode).
int RunMain(const CommandTable& table, int argc, char** argv);

}  // namespace gemmd::cli
