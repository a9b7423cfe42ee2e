#include "client/cli/commands.h"

namespace gemmd::cli {
namespace {

constexpr Flag kGlobalFlags[] = {
    TextFlag("server", "TARGET",
             "the daemon: HOST:PORT, unix:/PATH or unix-abstract:NAME; of several with commas "
             "between them the first that answers. GEMMD_SERVER names another default; without it "
             "the socket of a local gemmd that was started without an address comes first",
             "127.0.0.1:8470"),
    {.name = "tls", .help = "speak TLS, to a server that this system's authorities vouch for"},
    FileFlag("tls-ca", "FILE",
             "speak TLS, to a server that the authorities in this PEM file vouch for"),
    FileFlag("tls-cert", "FILE", "speak TLS and show this certificate; with --tls-key"),
    FileFlag("tls-key", "FILE", "its private key"),
    TextFlag("tls-server-name", "NAME",
             "speak TLS, and expect this name in the server's certificate instead of HOST"),
    FileFlag("token-file", "FILE", "show the bearer token in this file"),
    {.name = "send-token-in-plaintext",
     .help = "show it to a server of the network without TLS, too"},
    DurationFlag(
        "timeout", "TIME",
        "limit of each call, and of waiting for the daemon to be there; by default look-ups "
        "have 10s, transfers "
        "and work none, connecting 3s"),
    {.name = "json", .help = "one JSON document on stdout instead of text"},
    {.name = "quiet",
     .letter = 'q',
     .help = "no text on stdout, no notes and no progress on stderr; errors stay"},
    {.name = "help", .letter = 'h', .help = "explain the command"},
};

// The order of `gemmctl help`: work first, then looking, then housekeeping.
const Command* const kCommands[] = {
    &kMatmulCommand,  &kLoadCommand,      &kUploadCommand,  &kDownloadCommand,   &kPublishedCommand,
    &kSwitchCommand,  &kUnpublishCommand, &kBuffersCommand, &kSessionsCommand,   &kInfoCommand,
    &kTopCommand,     &kTraceCommand,     &kTuneCommand,    &kHealthCommand,     &kKernelsCommand,
    &kExplainCommand, &kLogCommand,       &kEndCommand,     &kTokenCommand,      &kConfigCommand,
    &kVersionCommand, &kHelpCommand,      &kManCommand,     &kCompletionCommand, &kCompleteCommand};

constexpr MovedCommand kMoved[] = {
    {.name = "bench", .remedy = "'gemmd_bench load' measures; see 'gemmd_bench help'"},
};

}  // namespace

std::span<const Flag> GlobalFlags() { return kGlobalFlags; }

const CommandTable& Commands() {
  static constexpr CommandTable kTable = {
      .global_flags = kGlobalFlags,
      .commands = kCommands,
      .purpose = "gemmctl multiplies matrices on a gemmd server, and looks after one.",
      .moved = kMoved};
  return kTable;
}

}  // namespace gemmd::cli
