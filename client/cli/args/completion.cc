#include "client/cli/args/completion.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace gemmd::cli {
namespace {

constexpr absl::string_view kBash =
    R"(# bash completion for %PROGRAM%: source <(%PROGRAM% completion bash)
_%PROGRAM%() {
  local cur=${COMP_WORDS[COMP_CWORD]} typed= text= kind= word i
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    # bash takes --flag=value, FILE:TENSOR, cuda:0 and m@2 for three words, @m for two.
    if [[ $i == 1 || ${COMP_WORDS[i]} == [=:] || ${COMP_WORDS[i-1]} == [=:@] ||
          ( ${COMP_WORDS[i]} == @ && $COMP_LINE == *"$typed@"* ) ]]; then
      typed+=${COMP_WORDS[i]}
    else
      text+=$typed$'\n' typed=${COMP_WORDS[i]}
    fi
  done
  [[ $cur == [=:] ]] && cur=
  [[ ${COMP_WORDS[COMP_CWORD-1]} == @ ]] && cur=@$cur  # readline replaces it, too
  COMPREPLY=()
  {
    read -r kind
    while IFS=$'\t' read -r word _; do COMPREPLY+=("${word#"${typed%"$cur"}"}"); done
  } < <(%PROGRAM% complete -- "$text$typed"$'\n' 2>/dev/null)
  [[ $kind == files ]] || return
  compopt -o filenames 2>/dev/null
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$cur")
}
complete -F _%PROGRAM% %PROGRAM%
)";

// Works both autoloaded from fpath and sourced.
constexpr absl::string_view kZsh = R"(#compdef %PROGRAM%
# zsh completion for %PROGRAM%: %PROGRAM% completion zsh > "${fpath[1]}/_%PROGRAM%"
_%PROGRAM%() {
  local -a found
  local kind word help
  while IFS=$'\t' read -r word help; do
    if [[ -z $kind ]]; then kind=$word; else found+=("${word//:/\\:}:$help"); fi
  done < <(%PROGRAM% complete -- "${(F)words[2,CURRENT]}"$'\n' 2>/dev/null)
  if [[ $kind == files ]]; then
    compset -P '--*='
    _files
  fi
  (( ! $#found )) || _describe value found
}
if [ "$funcstack[1]" = _%PROGRAM% ]; then _%PROGRAM% "$@"; else compdef _%PROGRAM% %PROGRAM%; fi
)";

constexpr absl::string_view kFish =
    R"(# fish completion for %PROGRAM%: %PROGRAM% completion fish | source
function _%PROGRAM%
  set -l typed (commandline -ct)
  set -l words (commandline -opc)[2..] "$typed"
  set -l found (%PROGRAM% complete -- (printf '%s\n' $words | string collect -N) 2>/dev/null)
  printf '%s\n' $found[2..]
  if test "$found[1]" = files
    set -l flag (string match -r -- '^--[^=]*=' $typed)
    __fish_complete_path (string replace -- "$flag" '' $typed) | string replace -r '^' -- "$flag"
  end
end
complete -c %PROGRAM% -f -a '(_%PROGRAM%)'
)";

class Completer {
 public:
  Completer(const CommandTable& table, std::span<const std::string> words)
      : table_(table), words_(words.first(words.size() - 1)), typed_(words.back()) {}

  Completion Run() && {
    for (const std::string& word : words_) {
      const Command* command = table_.Find(word);
      if (command == nullptr || command->hidden) continue;
      command_ = command;
      break;
    }
    const size_t equals = absl::StartsWith(typed_, "--") ? typed_.find('=') : std::string::npos;
    if (const Flag* flag = FlagNamed(equals != std::string::npos ? typed_.substr(0, equals)
                                     : words_.empty()            ? ""
                                                                 : words_.back())) {
      if (equals != std::string::npos) found_.prefix = typed_.substr(0, equals + 1);
      AddValue(flag->kind, flag->choices, flag->names);
    } else if (absl::StartsWith(typed_, "-")) {
      EachFlag([this](const Flag& one) { Add(absl::StrCat("--", one.name), one.help); });
    } else if (command_ == nullptr) {
      AddCommands();
    } else {
      for (const Positional& one : command_->positionals)
        AddValue(one.kind, one.choices, one.names);
    }
    return std::move(found_);
  }

 private:
  template <typename Do>
  void EachFlag(const Do& each) const {
    if (command_ != nullptr) {
      for (const Flag& flag : command_->flags) each(flag);
    }
    for (const Flag& flag : table_.global_flags) each(flag);
  }

  // The flag, if it takes a value.
  const Flag* FlagNamed(absl::string_view word) const {
    const Flag* found = nullptr;
    EachFlag([&](const Flag& flag) {
      if (flag.kind == ValueKind::kSwitch || found != nullptr) return;
      const bool letter =
          flag.letter != 0 && word == absl::StrCat("-", std::string(1, flag.letter));
      if (letter || word == absl::StrCat("--", flag.name)) found = &flag;
    });
    return found;
  }

  void Add(absl::string_view word, absl::string_view help = "") {
    std::string whole = absl::StrCat(found_.prefix, word);
    if (absl::StartsWith(whole, typed_)) found_.offers.push_back({std::move(whole), help});
  }

  void AddCommands() {
    for (const Command* command : table_.commands) {
      if (!command->hidden) Add(command->name, command->summary);
    }
  }

  void AddValue(ValueKind kind, std::span<const absl::string_view> choices, Names names) {
    for (absl::string_view choice : choices) Add(choice);
    found_.files |= kind == ValueKind::kFile;
    if (names == Names::kCommands) return AddCommands();
    if (names != Names::kNone) found_.names = names;
  }

  const CommandTable& table_;
  const std::span<const std::string> words_;  // before the one that is typed
  const std::string& typed_;
  const Command* command_ = nullptr;
  Completion found_;
};

}  // namespace

Completion CompletionOf(const CommandTable& table, std::span<const std::string> words) {
  static const std::string& none = *new std::string;
  return Completer(table, words.empty() ? std::span(&none, 1) : words).Run();
}

std::string CompletionScript(const CommandTable& table, absl::string_view shell) {
  const absl::string_view script = shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
  return absl::StrReplaceAll(script, {{"%PROGRAM%", table.program}});
}

}  // namespace gemmd::cli
