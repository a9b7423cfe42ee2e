// Help texts, written from the command table.

#pragma once

#include <string>

#include "client/cli/args/command.h"

namespace gemmd::cli {

std::string OverviewHelp(const CommandTable& table);
std::string CommandHelp(const CommandTable& table, const Command& command);
std::string ExitCodeHelp(const CommandTable& table);

}  // namespace gemmd::cli
