#include "client/cli/args/help.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/args/exit_code.h"

namespace gemmd::cli {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kShortChoices = 16;  // longer lists go to the right, or they push everything there

// Left column padded to the longest, right column wrapped at kWidth.
std::string TwoColumns(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t left_width = 0;
  for (const auto& [left, right] : rows) left_width = std::max(left_width, left.size());
  std::string text;
  for (const auto& [left, right] : rows) {
    std::string line = absl::StrFormat("  %-*s ", static_cast<int>(left_width), left);
    const size_t indent = line.size();
    for (absl::string_view word : absl::StrSplit(right, ' ', absl::SkipEmpty())) {
      if (line.size() + 1 + word.size() > kWidth) {
        absl::StrAppend(&text, line, "\n");
        line.assign(indent, ' ');
      }
      absl::StrAppend(&line, " ", word);
    }
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// Paragraphs end at an empty line and are filled to kWidth; lines that begin with a blank stay as
// they are.
std::string Filled(absl::string_view details) {
  std::string text;
  std::string line;
  const auto end_line = [&] {
    if (!line.empty()) absl::StrAppend(&text, line, "\n");
    line.clear();
  };
  for (absl::string_view source : absl::StrSplit(details, '\n')) {
    if (source.empty() || source[0] == ' ') {
      end_line();
      absl::StrAppend(&text, source, "\n");
      continue;
    }
    for (absl::string_view word : absl::StrSplit(source, ' ', absl::SkipEmpty())) {
      if (line.size() + 1 + word.size() > kWidth) end_line();
      absl::StrAppend(&line, line.empty() ? "" : " ", word);
    }
  }
  end_line();
  return text;
}

std::string ChoiceText(const Flag& flag, absl::string_view separator) {
  return absl::StrJoin(flag.choices.begin(), flag.choices.end(), separator);
}

std::string FlagLeft(const Flag& flag) {
  std::string left =
      flag.letter != 0 ? absl::StrCat("-", std::string(1, flag.letter), ", ") : "    ";
  absl::StrAppend(&left, "--", flag.name);
  if (flag.kind == ValueKind::kChoice) {
    const std::string choices = ChoiceText(flag, "|");
    absl::StrAppend(&left, " ", choices.size() <= kShortChoices ? choices : "WHICH");
  } else if (flag.kind != ValueKind::kSwitch) {
    absl::StrAppend(&left, " ", flag.value);
  }
  return left;
}

std::string FlagRows(std::span<const Flag> flags) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Flag& flag : flags) {
    std::string right(flag.help);
    if (flag.kind == ValueKind::kChoice && ChoiceText(flag, "|").size() > kShortChoices) {
      absl::StrAppend(&right, "; one of ", ChoiceText(flag, ", "));
    }
    if (!flag.fallback.empty()) absl::StrAppend(&right, " (default ", flag.fallback, ")");
    rows.emplace_back(FlagLeft(flag), std::move(right));
  }
  return TwoColumns(rows);
}

}  // namespace

std::string OverviewHelp(const CommandTable& table) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Command* command : table.commands) {
    if (!command->hidden) rows.emplace_back(command->name, command->summary);
  }
  return absl::StrCat(table.purpose, "\n\nusage: ", table.program,
                      " COMMAND [ARGUMENTS] [FLAGS]\n\ncommands:\n", TwoColumns(rows),
                      "\nflags of every command:\n", FlagRows(table.global_flags), "\n'",
                      table.program, " help COMMAND' explains one, '", table.program,
                      " help exit-codes' the exit codes.\n");
}

std::string CommandHelp(const CommandTable& table, const Command& command) {
  std::string usage = absl::StrCat("usage: ", table.program, " ", command.name);
  std::vector<std::pair<std::string, std::string>> arguments;
  for (const Positional& positional : command.positionals) {
    std::string name(positional.name);
    if (positional.kind == ValueKind::kChoice) {
      name = absl::StrJoin(positional.choices.begin(), positional.choices.end(), "|");
    }
    absl::StrAppend(&usage, " ", positional.required ? name : absl::StrCat("[", name, "]"));
    arguments.emplace_back(std::move(name), positional.help);
  }
  std::string text = absl::StrCat(table.program, " ", command.name, ": ", command.summary, "\n\n",
                                  usage, " [FLAGS]\n");
  if (!command.details.empty()) {
    absl::StrAppend(&text, "\n",
                    Filled(absl::StrReplaceAll(command.details, {{"%PROGRAM%", table.program}})));
  }
  if (!arguments.empty()) absl::StrAppend(&text, "\narguments:\n", TwoColumns(arguments));
  if (!command.flags.empty()) absl::StrAppend(&text, "\nflags:\n", FlagRows(command.flags));
  absl::StrAppend(&text, "\nflags of every command:\n", FlagRows(table.global_flags));
  return text;
}

std::string ExitCodeHelp(const CommandTable& table) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const ExitCodeMeaning& meaning : ExitCodes()) {
    rows.emplace_back(absl::StrFormat("%3d  %s", static_cast<int>(meaning.code), meaning.name),
                      meaning.meaning);
  }
  return absl::StrCat("exit codes of ", table.program, ":\n", TwoColumns(rows));
}

}  // namespace gemmd::cli
