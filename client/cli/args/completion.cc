#include "client/cli/args/completion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace gemmd::cli {
namespace {

std::vector<const Command*> Visible(const CommandTable& table) {
  std::vector<const Command*> commands;
  for (const Command* command : table.commands) {
    if (!command->hidden) commands.push_back(command);
  }
  return commands;
}

std::string Names(const CommandTable& table) {
  return absl::StrJoin(Visible(table), " ", [](std::string* out, const Command* command) {
    absl::StrAppend(out, command->name);
  });
}

std::string Words(std::span<const absl::string_view> words) {
  return absl::StrJoin(words.begin(), words.end(), " ");
}

// The scripts are written with %PROGRAM% where the program's name goes.
std::string Named(const CommandTable& table, absl::string_view script) {
  return absl::StrReplaceAll(script, {{"%PROGRAM%", table.program}});
}

// Inside '...' of every shell here: the quote ends, an escaped one follows, and it starts again.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string FlagWords(std::span<const Flag> flags, std::span<const Flag> more) {
  std::vector<std::string> words;
  for (std::span<const Flag> some : {flags, more}) {
    for (const Flag& flag : some) words.push_back(absl::StrCat("--", flag.name));
  }
  return absl::StrJoin(words, " ");
}

// A bash case: what follows a flag that takes a value. `prefix` keeps one command's flags from
// another's.
void AppendBashValues(absl::string_view prefix, std::span<const Flag> flags, std::string* script) {
  for (const Flag& flag : flags) {
    if (flag.kind == ValueKind::kSwitch) continue;
    std::string pattern = absl::StrCat(prefix, ":--", flag.name);
    if (flag.letter != 0) absl::StrAppend(&pattern, "|", prefix, ":-", std::string(1, flag.letter));
    std::string action = "return";  // a value that only the user knows
    if (flag.kind == ValueKind::kFile) action = "_%PROGRAM%_files; return";
    if (flag.kind == ValueKind::kChoice) {
      action =
          absl::StrCat("COMPREPLY=($(compgen -W '", Words(flag.choices), "' -- \"$cur\")); return");
    }
    absl::StrAppend(script, "    ", pattern, ") ", action, " ;;\n");
  }
}

std::string ZshFlag(const Flag& flag) {
  // In an _arguments spec, ':' and brackets separate; they are escaped in free text.
  std::string spec =
      absl::StrCat("--", flag.name, flag.kind == ValueKind::kSwitch ? "" : "=", "[",
                   absl::StrReplaceAll(flag.help, {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}}), "]");
  if (flag.kind == ValueKind::kFile) absl::StrAppend(&spec, ":", flag.value, ":_files");
  if (flag.kind == ValueKind::kChoice) {
    absl::StrAppend(&spec, ":", flag.name, ":(", Words(flag.choices), ")");
  }
  if (flag.kind == ValueKind::kText || flag.kind == ValueKind::kCount ||
      flag.kind == ValueKind::kNumber || flag.kind == ValueKind::kDuration) {
    absl::StrAppend(&spec, ":", flag.value, ": ");
  }
  return Quoted(spec);
}

std::string ZshPositional(size_t index, const Positional& positional) {
  std::string action = " ";
  if (positional.kind == ValueKind::kFile) action = "_files";
  if (positional.kind == ValueKind::kChoice) {
    action = absl::StrCat("(", Words(positional.choices), ")");
  }
  return Quoted(
      absl::StrCat(index + 1, positional.required ? ":" : "::", positional.name, ":", action));
}

std::string FishFlag(absl::string_view condition, const Flag& flag) {
  std::string line = absl::StrCat("complete -c %PROGRAM%", condition, " -l ", flag.name);
  if (flag.letter != 0) absl::StrAppend(&line, " -s ", std::string(1, flag.letter));
  if (flag.kind == ValueKind::kFile) absl::StrAppend(&line, " -r -F");
  if (flag.kind == ValueKind::kChoice) {
    absl::StrAppend(&line, " -x -a ", Quoted(Words(flag.choices)));
  }
  if (flag.kind == ValueKind::kText || flag.kind == ValueKind::kCount ||
      flag.kind == ValueKind::kNumber || flag.kind == ValueKind::kDuration) {
    absl::StrAppend(&line, " -x");
  }
  return absl::StrCat(line, " -d ", Quoted(flag.help), "\n");
}

}  // namespace

std::string BashCompletion(const CommandTable& table) {
  std::string script =
      "# bash completion for %PROGRAM%: source <(%PROGRAM% completion bash)\n"
      "_%PROGRAM%_files() {\n"
      "  compopt -o filenames 2>/dev/null\n"
      "  COMPREPLY=($(compgen -f -- \"$cur\"))\n"
      "}\n"
      "_%PROGRAM%() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word\n"
      "  COMPREPLY=()\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n";
  absl::StrAppend(&script, "    case $word in ",
                  absl::StrJoin(Visible(table), "|",
                                [](std::string* out, const Command* command) {
                                  absl::StrAppend(out, command->name);
                                }),
                  ") command=$word; break ;; esac\n  done\n  case \"$command:$prev\" in\n");
  for (const Command* command : Visible(table)) {
    AppendBashValues(command->name, command->flags, &script);
  }
  AppendBashValues("*", table.global_flags, &script);
  absl::StrAppend(&script, "  esac\n  case $command in\n    '') COMPREPLY=($(compgen -W '",
                  Names(table), " ", FlagWords({}, table.global_flags), "' -- \"$cur\")) ;;\n");
  for (const Command* command : Visible(table)) {
    std::string words;
    bool files = false;
    for (const Positional& positional : command->positionals) {
      if (positional.kind == ValueKind::kChoice)
        absl::StrAppend(&words, Words(positional.choices), " ");
      files |= positional.kind == ValueKind::kFile;
    }
    absl::StrAppend(&script, "    ", command->name, ")\n      if [[ $cur == -* ]]; then\n",
                    "        COMPREPLY=($(compgen -W '",
                    FlagWords(command->flags, table.global_flags), "' -- \"$cur\"))\n");
    if (!words.empty() || files) {
      absl::StrAppend(&script, "      else\n");
      if (files) absl::StrAppend(&script, "        _%PROGRAM%_files\n");
      if (!words.empty()) {
        absl::StrAppend(&script, "        COMPREPLY+=($(compgen -W '", words, "' -- \"$cur\"))\n");
      }
    }
    absl::StrAppend(&script, "      fi ;;\n");
  }
  return Named(table, absl::StrCat(script, "  esac\n}\ncomplete -F _%PROGRAM% %PROGRAM%\n"));
}

std::string ZshCompletion(const CommandTable& table) {
  std::string script =
      "#compdef %PROGRAM%\n"
      "# zsh completion for %PROGRAM%: %PROGRAM% completion zsh > \"${fpath[1]}/_%PROGRAM%\"\n"
      "_%PROGRAM%() {\n"
      "  local context state line\n"
      "  local -a commands global\n"
      "  commands=(\n";
  for (const Command* command : Visible(table)) {
    absl::StrAppend(&script, "    ", Quoted(absl::StrCat(command->name, ":", command->summary)),
                    "\n");
  }
  absl::StrAppend(&script, "  )\n  global=(\n");
  for (const Flag& flag : table.global_flags) absl::StrAppend(&script, "    ", ZshFlag(flag), "\n");
  absl::StrAppend(&script, "  )\n  _arguments -C $global '1: :->command' '*:: :->rest'\n",
                  "  case $state in\n    command) _describe command commands ;;\n",
                  "    rest)\n      case $words[1] in\n");
  for (const Command* command : Visible(table)) {
    absl::StrAppend(&script, "        ", command->name, ") _arguments $global");
    for (const Flag& flag : command->flags)
      absl::StrAppend(&script, " \\\n          ", ZshFlag(flag));
    for (size_t i = 0; i < command->positionals.size(); ++i) {
      absl::StrAppend(&script, " \\\n          ", ZshPositional(i, command->positionals[i]));
    }
    absl::StrAppend(&script, " ;;\n");
  }
  return Named(table, absl::StrCat(script, "      esac ;;\n  esac\n}\n",
                                   // Works both autoloaded from fpath and sourced.
                                   "if [ \"$funcstack[1]\" = _%PROGRAM% ]; then _%PROGRAM% \"$@\"; "
                                   "else compdef _%PROGRAM% %PROGRAM%; fi\n"));
}

std::string FishCompletion(const CommandTable& table) {
  std::string script =
      absl::StrCat("# fish completion for %PROGRAM%: %PROGRAM% completion fish | source\n",
                   "complete -c %PROGRAM% -f\nset -l %PROGRAM%_commands ", Names(table), "\n");
  for (const Command* command : Visible(table)) {
    absl::StrAppend(&script, "complete -c %PROGRAM% -n \"not __fish_seen_subcommand_from ",
                    "$%PROGRAM%_commands\" -a ", command->name, " -d ", Quoted(command->summary),
                    "\n");
  }
  for (const Flag& flag : table.global_flags) absl::StrAppend(&script, FishFlag("", flag));
  for (const Command* command : Visible(table)) {
    const std::string condition =
        absl::StrCat(" -n \"__fish_seen_subcommand_from ", command->name, "\"");
    for (const Flag& flag : command->flags) absl::StrAppend(&script, FishFlag(condition, flag));
    for (const Positional& positional : command->positionals) {
      if (positional.kind == ValueKind::kFile) {
        absl::StrAppend(&script, "complete -c %PROGRAM%", condition, " -F\n");
      }
      if (positional.kind == ValueKind::kChoice) {
        absl::StrAppend(&script, "complete -c %PROGRAM%", condition, " -a ",
                        Quoted(Words(positional.choices)), "\n");
      }
    }
  }
  return Named(table, script);
}

}  // namespace gemmd::cli
