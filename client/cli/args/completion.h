// Shell completion scripts, written from the command table. Static: nothing runs while the user
// types.

#ifndef GEMMD_CLIENT_CLI_ARGS_COMPLETION_H_
#define GEMMD_CLIENT_CLI_ARGS_COMPLETION_H_

#include <string>

#include "client/cli/args/command.h"

namespace gemmd::cli {

std::string BashCompletion(const CommandTable& table);
std::string ZshCompletion(const CommandTable& table);
std::string FishCompletion(const CommandTable& table);

}  // namespace gemmd::cli

#endif  // GEMMD_CLIENT_CLI_ARGS_COMPLETION_H_
