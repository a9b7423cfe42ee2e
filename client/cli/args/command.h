// What a sub-command is: its name, its flags, its arguments, and what runs it. One table of these
// (commands.cc) drives parsing, help and shell completion, so that the three cannot disagree.
//
//   constexpr Flag kFlags[] = {CountFlag("limit", "N", //   "at most N rows")}; const Command
//   kListCommand = {.name = "list", .summary = "...", .flags = kFlags, .run = RunList};

#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd::cli {

enum class ValueKind {
  kSwitch,    // present or not; takes no value
  kText,      // anything
  kFile,      // a path; completion offers files
  kCount,     // a whole number, 0 or more unless `min` says otherwise
  kNumber,    // a finite decimal number
  kDuration,  // "250ms", "5s", "2m", "12h", "90d", or a plain number of seconds; more than 0
  kChoice,    // one of `choices`
};

// Values that are known elsewhere: completion asks for them, by the command `names`.
enum class Names {
  kNone,
  kCommands,  // of this table
  kDevices,
  kKernels,
  kPublished,
  kSessions,
};

struct Flag {
  absl::string_view name;  // without the dashes
  char letter = 0;         // 'o' for -o; 0 for none
  ValueKind kind = ValueKind::kSwitch;
  absl::string_view value;     // what help calls the value: "FILE"
  absl::string_view fallback;  // the default, as one would type it; empty: none
  absl::string_view help;      // one line, no full stop
  std::span<const absl::string_view> choices = {};
  double min = 0;              // kCount only
  Names names = Names::kNone;  // kText only
};

// A row of a command's table: name, what help calls the value, one line of help, the default.
constexpr Flag ValueFlag(ValueKind kind, absl::string_view name, absl::string_view value,
                         absl::string_view help, absl::string_view fallback = "", double min = 0) {
  return {
      .name = name, .kind = kind, .value = value, .fallback = fallback, .help = help, .min = min};
}
constexpr Flag TextFlag(absl::string_view name, absl::string_view value, absl::string_view help,
                        absl::string_view fallback = "") {
  return ValueFlag(ValueKind::kText, name, value, help, fallback);
}
constexpr Flag NameFlag(Names names, absl::string_view name, absl::string_view help) {
  return {.name = name, .kind = ValueKind::kText, .value = "NAME", .help = help, .names = names};
}
constexpr Flag FileFlag(absl::string_view name, absl::string_view value, absl::string_view help,
                        absl::string_view fallback = "") {
  return ValueFlag(ValueKind::kFile, name, value, help, fallback);
}
constexpr Flag CountFlag(absl::string_view name, absl::string_view value, absl::string_view help,
                         absl::string_view fallback = "", double min = 0) {
  return ValueFlag(ValueKind::kCount, name, value, help, fallback, min);
}
constexpr Flag NumberFlag(absl::string_view name, absl::string_view value, absl::string_view help,
                          absl::string_view fallback = "") {
  return ValueFlag(ValueKind::kNumber, name, value, help, fallback);
}
constexpr Flag DurationFlag(absl::string_view name, absl::string_view value, absl::string_view help,
                            absl::string_view fallback = "") {
  return ValueFlag(ValueKind::kDuration, name, value, help, fallback);
}
constexpr Flag ChoiceFlag(absl::string_view name, std::span<const absl::string_view> choices,
                          absl::string_view help, absl::string_view fallback = "") {
  return {.name = name,
          .kind = ValueKind::kChoice,
          .fallback = fallback,
          .help = help,
          .choices = choices};
}

struct Positional {
  absl::string_view name;  // as help shows it: "A"
  absl::string_view help;
  ValueKind kind = ValueKind::kText;  // kText, kFile or kChoice
  bool required = true;
  std::span<const absl::string_view> choices = {};
  Names names = Names::kNone;  // kText only
};

class Args;
class Output;
struct CommandTable;

// What a command runs with. All outlive the call.
struct Invocation {
  const Args& args;
  Output& out;
  const CommandTable& table;
};

struct Command {
  absl::string_view name;
  absl::string_view summary;  // one line
  absl::string_view details;  // below the usage in `gemmctl help NAME`: paragraphs, filled when
                              // printed, and lines that begin with a blank, kept; %PROGRAM%
                              // becomes the table's program
  std::span<const Positional> positionals = {};
  std::span<const Flag> flags = {};
  bool hidden = false;  // neither in help nor in completion
  absl::Status (*run)(Invocation& call) = nullptr;
};

// A command of earlier versions, and the remedy: "'gemmd_bench load' measures".
struct MovedCommand {
  absl::string_view name;
  absl::string_view remedy;
};

// The whole interface: what every command takes, and the commands in the order that help lists
// them.
struct CommandTable {
  std::span<const Flag> global_flags;
  std::span<const Command* const> commands;
  absl::string_view program = "gemmctl";
  absl::string_view purpose = {};  // a sentence above the overview
  std::span<const MovedCommand> moved = {};

  const Command* Find(absl::string_view name) const;  // nullptr when there is none
};

}  // namespace gemmd::cli
