#include "client/cli/commands.h"

namespace gemmd::cli {
namespace {

constexpr Flag kGlobalFlags[] = {
    {.name = "server",
     .kind = ValueKind::kText,
     .value = "TARGET",
     .fallback = "127.0.0.1:8470",
     .help = "the daemon: HOST:PORT, unix:/PATH or unix-abstract:NAME"},
    {.name = "timeout",
     .kind = ValueKind::kDuration,
     .value = "TIME",
     .help = "limit of each call, and of waiting for the daemon to be there; by default look-ups "
             "have 10s, transfers "
             "and work none, connecting 3s"},
    {.name = "json", .help = "one JSON document on stdout instead of text"},
    {.name = "quiet",
     .letter = 'q',
     .help = "no text on stdout, no notes and no progress on stderr; errors stay"},
    {.name = "help", .letter = 'h', .help = "explain the command"},
};

// The order of `gemmctl help`: work first, then looking, then housekeeping.
const Command* const kCommands[] = {
    &kMatmulCommand,     &kUploadCommand,   &kDownloadCommand, &kUnpublishCommand, &kBuffersCommand,
    &kSessionsCommand,   &kInfoCommand,     &kTopCommand,      &kHealthCommand,    &kKernelsCommand,
    &kExplainCommand,    &kBenchCommand,    &kConfigCommand,   &kVersionCommand,   &kHelpCommand,
    &kCompletionCommand, &kEchoPeerCommand,
};

}  // namespace

const CommandTable& Commands() {
  static constexpr CommandTable kTable = {kGlobalFlags, kCommands};
  return kTable;
}

}  // namespace gemmd::cli
