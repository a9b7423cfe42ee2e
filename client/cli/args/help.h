// Help texts, written from the command table.

#ifndef GEMMD_CLIENT_CLI_ARGS_HELP_H_
#define GEMMD_CLIENT_CLI_ARGS_HELP_H_

#include <string>

#include "client/cli/args/command.h"

namespace gemmd::cli {

std::string OverviewHelp(const CommandTable& table);
std::string CommandHelp(const CommandTable& table, const Command& command);
std::string ExitCodeHelp(const CommandTable& table);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_ARGS_HELP_H_
