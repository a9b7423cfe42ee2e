#include "client/cli/args/completion.h"
#include "client/cli/args/output.h"
#include "client/cli/args/parser.h"
#include "client/cli/commands.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kShells[] = {"bash", "zsh", "fish"};
constexpr Positional kPositionals[] = {
    {.name = "SHELL", .help = "which shell", .kind = ValueKind::kChoice, .choices = kShells},
};

absl::Status RunCompletion(Invocation& call) {
  const std::string shell = call.args.Positional(0);
  if (shell == "bash") {
    call.out.Text(BashCompletion(Commands()));
  } else if (shell == "zsh") {
    call.out.Text(ZshCompletion(Commands()));
  } else {
    call.out.Text(FishCompletion(Commands()));
  }
  return absl::OkStatus();
}

}  // namespace

const Command kCompletionCommand = {
    .name = "completion",
    .summary = "print a shell's completion script",
    .details =
        "  source <(gemmctl completion bash)                     for this shell\n"
        "  gemmctl completion zsh > \"${fpath[1]}/_gemmctl\"       for every zsh to come\n"
        "  gemmctl completion fish > ~/.config/fish/completions/gemmctl.fish",
    .positionals = kPositionals,
    .run = RunCompletion};

}  // namespace gemmd::cli
