// Every command of gemmctl. A new one: cmd_x.cc defining kXCommand, a line here, a line in
// commands.cc, one in CMake.

#pragma once

#include "client/cli/args/command.h"

namespace gemmd::cli {

extern const Command kBuffersCommand;
extern const Command kCompletionCommand;
extern const Command kConfigCommand;
extern const Command kDownloadCommand;
extern const Command kEndCommand;
extern const Command kExplainCommand;
extern const Command kHealthCommand;
extern const Command kHelpCommand;
extern const Command kInfoCommand;
extern const Command kKernelsCommand;
extern const Command kLoadCommand;
extern const Command kLogCommand;
extern const Command kManCommand;
extern const Command kMatmulCommand;
extern const Command kCompleteCommand;
extern const Command kPublishedCommand;
extern const Command kSessionsCommand;
extern const Command kSwitchCommand;
extern const Command kTokenCommand;
extern const Command kTopCommand;
extern const Command kTraceCommand;
extern const Command kTuneCommand;
extern const Command kUnpublishCommand;
extern const Command kUploadCommand;
extern const Command kVersionCommand;

// What every command takes, those of gemmd_bench too.
std::span<const Flag> GlobalFlags();

// The table that parsing, help and completion are made from.
const CommandTable& Commands();

}  // namespace gemmd::cli
