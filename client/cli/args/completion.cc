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

std::string CommandNames(const CommandTable& table) {
  return absl::StrJoin(Visible(table), " ", [](std::string* out, const Command* command) {
    absl::StrAppend(out, command->name);
  });
}

// What the command `names` calls them; "" for none.
absl::string_view NameOf(Names names) {
  switch (names) {
    case Names::kDevices:
      return "devices";
    case Names::kKernels:
      return "kernels";
    case Names::kPublished:
      return "published";
    case Names::kSessions:
      return "sessions";
    case Names::kCommands:
    case Names::kNone:
      break;
  }
  return "";
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

std::string BashNames(const CommandTable& table, Names names) {
  if (names == Names::kCommands) {
    return absl::StrCat("COMPREPLY+=($(compgen -W '", CommandNames(table), "' -- \"$cur\"))");
  }
  return absl::StrCat("_%PROGRAM%_names ", NameOf(names));
}

// A bash case: what follows a flag that takes a value. `prefix` keeps one command's flags from
// another's.
void AppendBashValues(const CommandTable& table, absl::string_view prefix,
                      std::span<const Flag> flags, std::string* script) {
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
    if (flag.names != Names::kNone) action = absl::StrCat(BashNames(table, flag.names), "; return");
    absl::StrAppend(script, "    ", pattern, ") ", action, " ;;\n");
  }
}

std::string ZshNames(Names names) {
  if (names == Names::kCommands) return "_%PROGRAM%_commands";
  return absl::StrCat("{_%PROGRAM%_names ", NameOf(names), "}");
}

std::string ZshFlag(const Flag& flag) {
  // In an _arguments spec, ':' and brackets separate; they are escaped in free text.
  std::string spec =
      absl::StrCat("--", flag.name, flag.kind == ValueKind::kSwitch ? "" : "=", "[",
                   absl::StrReplaceAll(flag.help, {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}}), "]");
  if (flag.kind == ValueKind::kFile) absl::StrAppend(&spec, ":", flag.value, ":_%PROGRAM%_files");
  if (flag.names != Names::kNone) {
    absl::StrAppend(&spec, ":", flag.value, ":", ZshNames(flag.names));
    return Quoted(spec);
  }
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
  if (positional.kind == ValueKind::kFile) action = "_%PROGRAM%_files";
  if (positional.names != Names::kNone) action = ZshNames(positional.names);
  if (positional.kind == ValueKind::kChoice) {
    action = absl::StrCat("(", Words(positional.choices), ")");
  }
  return Quoted(
      absl::StrCat(index + 1, positional.required ? ":" : "::", positional.name, ":", action));
}

std::string FishNames(Names names) {
  if (names == Names::kCommands) return "\"$%PROGRAM%_commands\"";
  return absl::StrCat("\"(_%PROGRAM%_names ", NameOf(names), ")\"");
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
    if (flag.names != Names::kNone) absl::StrAppend(&line, " -a ", FishNames(flag.names));
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
      // What is known elsewhere, of the server that the line names.
      "_%PROGRAM%_names() {\n"
      "  local name i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do case ${COMP_WORDS[i]} in\n"
      "    --server|--token-file|--tls-*)\n"
      "      [[ ${COMP_WORDS[i+1]} == = ]] && set -- \"$@\" "
      "\"${COMP_WORDS[i]}=${COMP_WORDS[i+2]}\" "
      "|| set -- \"$@\" \"${COMP_WORDS[i]}\" \"${COMP_WORDS[i+1]}\" ;;\n"
      "  esac; done\n"
      "  while IFS= read -r name; do\n"
      "    [[ $name == \"$cur\"* ]] && COMPREPLY+=(\"$name\")\n"
      "  done < <(%PROGRAM% names \"$@\" 2>/dev/null)\n"
      "}\n"
      "_%PROGRAM%() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word\n"
      "  COMPREPLY=()\n"
      // bash takes --flag=value and FILE:TENSOR for three words.
      "  case $cur in\n"
      "    =) cur= ;;\n"
      "    :) cur=; _%PROGRAM%_names tensors \"$prev\"; return ;;\n"
      "    *) case $prev in\n"
      "         =) prev=${COMP_WORDS[COMP_CWORD-2]} ;;\n"
      "         :) _%PROGRAM%_names tensors \"${COMP_WORDS[COMP_CWORD-2]}\"; return ;;\n"
      "       esac ;;\n"
      "  esac\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n";
  absl::StrAppend(&script, "    case $word in ",
                  absl::StrJoin(Visible(table), "|",
                                [](std::string* out, const Command* command) {
                                  absl::StrAppend(out, command->name);
                                }),
                  ") command=$word; break ;; esac\n  done\n  case \"$command:$prev\" in\n");
  for (const Command* command : Visible(table)) {
    AppendBashValues(table, command->name, command->flags, &script);
  }
  AppendBashValues(table, "*", table.global_flags, &script);
  absl::StrAppend(&script, "  esac\n  case $command in\n    '') COMPREPLY=($(compgen -W '",
                  CommandNames(table), " ", FlagWords({}, table.global_flags),
                  "' -- \"$cur\")) ;;\n");
  for (const Command* command : Visible(table)) {
    std::string words;
    bool files = false;
    std::vector<Names> asked;
    for (const Positional& positional : command->positionals) {
      if (positional.kind == ValueKind::kChoice)
        absl::StrAppend(&words, Words(positional.choices), " ");
      files |= positional.kind == ValueKind::kFile;
      if (positional.names != Names::kNone) asked.push_back(positional.names);
    }
    absl::StrAppend(&script, "    ", command->name, ")\n      if [[ $cur == -* ]]; then\n",
                    "        COMPREPLY=($(compgen -W '",
                    FlagWords(command->flags, table.global_flags), "' -- \"$cur\"))\n");
    if (!words.empty() || files || !asked.empty()) {
      absl::StrAppend(&script, "      else\n");
      if (files) absl::StrAppend(&script, "        _%PROGRAM%_files\n");
      for (Names names : asked) {
        absl::StrAppend(&script, "        ", BashNames(table, names), "\n");
      }
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
      "_%PROGRAM%_names() {\n"
      "  local -a where\n"
      "  local i\n"
      "  for ((i = 1; i < CURRENT; ++i)); do case $words[i] in\n"
      "    (--server|--token-file|--tls-*)=*) where+=($words[i]) ;;\n"
      "    --server|--token-file|--tls-*) where+=($words[i] $words[i+1]) ;;\n"
      "  esac; done\n"
      "  compadd -- ${(f)\"$(%PROGRAM% names $1 $where 2>/dev/null)\"}\n"
      "}\n"
      "_%PROGRAM%_files() {\n"
      "  local file=${PREFIX%%:*}\n"
      "  if [[ $PREFIX == *:* && -f $file ]]; then\n"
      "    compadd -P $file: -- ${(f)\"$(%PROGRAM% names tensors $file 2>/dev/null)\"}\n"
      "  else\n    _files\n  fi\n"
      "}\n"
      "_%PROGRAM%_commands() { compadd -- " +
      CommandNames(table) +
      " }\n"
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
  std::string script = absl::StrCat(
      "# fish completion for %PROGRAM%: %PROGRAM% completion fish | source\n",
      "complete -c %PROGRAM% -f\nset -g %PROGRAM%_commands ", CommandNames(table), "\n",
      "function _%PROGRAM%_names\n"
      "  set -l where\n"
      "  for word in (commandline -opc)\n"
      "    if string match -qr -- '^--(server|token-file|tls-[a-z-]+)=' $word\n"
      "      set -a where $word\n    end\n  end\n"
      "  %PROGRAM% names $argv $where 2>/dev/null\nend\n"
      "function _%PROGRAM%_tensors\n"
      "  set -l file (string replace -r ':.*' '' -- (commandline -ct))\n"
      "  test -f \"$file\"; and string replace -r '^' $file: -- "
      "(%PROGRAM% names tensors $file 2>/dev/null)\nend\n");
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
        absl::StrAppend(&script, "complete -c %PROGRAM%", condition, " -a ",
                        "\"(_%PROGRAM%_tensors)\"\n");
      }
      if (positional.names != Names::kNone) {
        absl::StrAppend(&script, "complete -c %PROGRAM%", condition, " -a ",
                        FishNames(positional.names), "\n");
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
