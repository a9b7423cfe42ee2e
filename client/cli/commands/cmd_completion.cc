#include "client/cli/args/completion.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"

namespace gemmd::cli {
namespace {

constexpr Positional kCompletionPositionals[] = {
    {.name = "SHELL", .help = "which shell", .kind = ValueKind::kChoice, .choices = kShells},
};

absl::Status RunCompletion(Invocation& call) {
  call.out.Text(CompletionScript(call.table, call.args.Positional(0)));
  return absl::OkStatus();
}

}  // namespace

const Command kCompletionCommand = {
    .name = "completion",
    .summary = "print a shell's completion script",
    .details =
        "  source <(%PROGRAM% completion bash)                     for this shell\n"
        "  %PROGRAM% completion zsh > \"${fpath[1]}/_%PROGRAM%\"       for every zsh to come\n"
        "  %PROGRAM% completion fish > ~/.config/fish/completions/%PROGRAM%.fish",
    .positionals = kCompletionPositionals,
    .run = RunCompletion};

}  // namespace gemmd::cli
