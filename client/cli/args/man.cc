#include "client/cli/args/man.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/args/exit_code.h"

namespace gemmd::cli {
namespace {

// Text as roff prints it: its escape character doubled, minus signs that can be pasted into a
// shell, and no line taken for a request.
std::string Escaped(absl::string_view text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  if (absl::StartsWith(escaped, ".") || absl::StartsWith(escaped, "'")) escaped.insert(0, "\\&");
  return escaped;
}

std::string Bold(absl::string_view text) { return absl::StrCat("\\fB", Escaped(text), "\\fR"); }
std::string Italic(absl::string_view text) { return absl::StrCat("\\fI", Escaped(text), "\\fR"); }

std::string Title(absl::string_view name, absl::string_view version) {
  return absl::StrCat(".TH ", absl::AsciiStrToUpper(Escaped(name)), " 1 \"\" \"gemmd ",
                      Escaped(version), "\" \"gemmd\"\n");
}

std::string Tagged(absl::string_view tag, absl::string_view text) {
  return absl::StrCat(".TP\n", tag, "\n", Escaped(text), "\n");
}

std::string FlagTag(const Flag& flag) {
  std::string tag = flag.letter != 0
                        ? absl::StrCat(Bold(absl::StrCat("-", std::string(1, flag.letter))), ", ")
                        : std::string();
  absl::StrAppend(&tag, Bold(absl::StrCat("--", flag.name)));
  if (flag.kind == ValueKind::kChoice) {
    absl::StrAppend(&tag, " ", Italic("WHICH"));
  } else if (flag.kind != ValueKind::kSwitch) {
    absl::StrAppend(&tag, " ", Italic(flag.value));
  }
  return tag;
}

std::string FlagList(std::span<const Flag> flags) {
  std::string text;
  for (const Flag& flag : flags) {
    std::string help(flag.help);
    if (flag.kind == ValueKind::kChoice) {
      absl::StrAppend(&help, "; one of ",
                      absl::StrJoin(flag.choices.begin(), flag.choices.end(), ", "));
    }
    if (!flag.fallback.empty()) absl::StrAppend(&help, " (default ", flag.fallback, ")");
    absl::StrAppend(&text, Tagged(FlagTag(flag), help));
  }
  return text;
}

// What the command says of itself: paragraphs are filled, lines that begin with a blank kept.
std::string Details(absl::string_view details) {
  std::string text;
  bool kept = false;
  for (absl::string_view line : absl::StrSplit(details, '\n')) {
    const bool keep = absl::StartsWith(line, " ");
    if (keep != kept) absl::StrAppend(&text, keep ? ".PP\n.nf\n" : ".fi\n");
    if (line.empty()) {
      absl::StrAppend(&text, ".PP\n");
    } else {
      absl::StrAppend(&text, Escaped(line), "\n");
    }
    kept = keep;
  }
  if (kept) absl::StrAppend(&text, ".fi\n");
  return text;
}

std::string ExitStatus() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitCodeMeaning& meaning : ExitCodes()) {
    absl::StrAppend(&text, Tagged(Bold(absl::StrCat(static_cast<int>(meaning.code))),
                                  absl::StrCat(meaning.name, ": ", meaning.meaning)));
  }
  return text;
}

std::string PageName(const CommandTable& table, const Command& command) {
  return absl::StrCat(table.program, "-", command.name);
}

std::string ProgramPage(const CommandTable& table, absl::string_view version) {
  std::string text =
      absl::StrCat(Title(table.program, version), ".SH NAME\n", Escaped(table.program), " \\- ",
                   Escaped(absl::StripSuffix(
                       absl::StripPrefix(table.purpose, absl::StrCat(table.program, " ")), ".")),
                   "\n.SH SYNOPSIS\n", Bold(table.program), " ", Italic("COMMAND"), " [",
                   Italic("ARGUMENTS"), "] [", Italic("FLAGS"), "]\n.SH COMMANDS\n");
  std::vector<std::string> pages = {"\\fBgemmd\\fR(8)"};
  for (const Command* command : table.commands) {
    if (command->hidden) continue;
    absl::StrAppend(&text, Tagged(Bold(command->name), command->summary));
    pages.push_back(absl::StrCat(Bold(PageName(table, *command)), "(1)"));
  }
  return absl::StrCat(text, ".SH FLAGS OF EVERY COMMAND\n", FlagList(table.global_flags),
                      ExitStatus(), ".SH SEE ALSO\n", absl::StrJoin(pages, ",\n"), "\n");
}

std::string CommandPage(const CommandTable& table, const Command& command,
                        absl::string_view version) {
  const std::string name = PageName(table, command);
  std::string synopsis = absl::StrCat(Bold(table.program), " ", Bold(command.name));
  std::string arguments;
  for (const Positional& positional : command.positionals) {
    std::string shown = Italic(positional.name);
    if (positional.kind == ValueKind::kChoice) {
      shown = absl::StrJoin(positional.choices, "|", [](std::string* out, absl::string_view one) {
        absl::StrAppend(out, Bold(one));
      });
    }
    absl::StrAppend(&synopsis, " ", positional.required ? shown : absl::StrCat("[", shown, "]"));
    absl::StrAppend(&arguments, Tagged(shown, positional.help));
  }
  std::string text = absl::StrCat(Title(name, version), ".SH NAME\n", Escaped(name), " \\- ",
                                  Escaped(command.summary), "\n.SH SYNOPSIS\n", synopsis, " [",
                                  Italic("FLAGS"), "]\n");
  if (!command.details.empty()) {
    absl::StrAppend(&text, ".SH DESCRIPTION\n",
                    Details(absl::StrReplaceAll(command.details, {{"%PROGRAM%", table.program}})));
  }
  if (!arguments.empty()) absl::StrAppend(&text, ".SH ARGUMENTS\n", arguments);
  if (!command.flags.empty()) absl::StrAppend(&text, ".SH FLAGS\n", FlagList(command.flags));
  return absl::StrCat(text, ".SH FLAGS OF EVERY COMMAND\n", FlagList(table.global_flags),
                      ".SH SEE ALSO\n", Bold(table.program), "(1)\n");
}

}  // namespace

std::vector<ManPage> ManPages(const CommandTable& table, absl::string_view version) {
  std::vector<ManPage> pages = {{std::string(table.program), ProgramPage(table, version)}};
  for (const Command* command : table.commands) {
    if (command->hidden) continue;
    pages.push_back({PageName(table, *command), CommandPage(table, *command, version)});
  }
  return pages;
}

}  // namespace gemmd::cli
