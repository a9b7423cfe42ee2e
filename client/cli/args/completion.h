// What a shell may offer for the word that is being typed. The program itself says so, asked by a
// few lines of each shell's (the hidden command `complete`): they know no command and no flag.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "client/cli/args/command.h"

namespace gemmd::cli {

struct Completion {
  struct Offer {
    std::string word;  // all of it, "--mode=fast"
    absl::string_view help;
  };
  std::vector<Offer> offers;
  bool files = false;  // paths fit, too, or FILE:TENSOR
  // Names that are known elsewhere fit, too, each behind `prefix`: "--kernel=" or nothing.
  Names names = Names::kNone;
  std::string prefix;
};

// For the last of `words`, which stand behind the program's name.
Completion CompletionOf(const CommandTable& table, std::span<const std::string> words);

inline constexpr absl::string_view kShells[] = {"bash", "zsh", "fish"};
// For one of kShells. What it hands to `complete` is the words so far, each with a newline behind
// it; what it reads is "files" or "words", and a line each of a word, a tab and its help.
std::string CompletionScript(const CommandTable& table, absl::string_view shell);

}  // namespace gemmd::cli
