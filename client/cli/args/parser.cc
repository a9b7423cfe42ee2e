#include "client/cli/args/parser.h"

#include <cmath>
#include <cstdlib>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/args/exit_code.h"
#include "client/cli/args/nearest.h"
#include "status/propagate.h"

namespace gemmd::cli {
namespace {

absl::Status UsageError(std::string message) {
  return WithExit(ExitCode::kUsage, absl::InvalidArgumentError(message));
}

const Flag* FindFlag(std::span<const Flag> flags, absl::string_view name) {
  for (const Flag& flag : flags) {
    if (flag.name == name || (name.size() == 1 && flag.letter == name[0])) return &flag;
  }
  return nullptr;
}

std::string DidYouMean(absl::string_view typed, const std::vector<absl::string_view>& known,
                       absl::string_view before = "") {
  const absl::string_view nearest = Nearest(typed, known);
  return nearest.empty() ? "" : absl::StrCat("; did you mean '", before, nearest, "'?");
}

absl::Status CheckChoice(absl::string_view what, absl::string_view value,
                         std::span<const absl::string_view> choices) {
  for (absl::string_view choice : choices) {
    if (choice == value) return absl::OkStatus();
  }
  return UsageError(absl::StrCat(what, "='", value, "' is not one of ",
                                 absl::StrJoin(choices.begin(), choices.end(), ", "),
                                 DidYouMean(value, {choices.begin(), choices.end()})));
}

absl::Status CheckValue(const Flag& flag, absl::string_view value) {
  const std::string what = absl::StrCat("--", flag.name);
  switch (flag.kind) {
    case ValueKind::kSwitch:
    case ValueKind::kText:
      return absl::OkStatus();
    case ValueKind::kFile:
      return value.empty() ? UsageError(absl::StrCat(what, " needs a file name"))
                           : absl::OkStatus();
    case ValueKind::kCount: {
      int64_t count = 0;
      if (!absl::SimpleAtoi(value, &count) || static_cast<double>(count) < flag.min) {
        return UsageError(absl::StrCat(what, "='", value, "' is not a whole number of at least ",
                                       static_cast<int64_t>(flag.min)));
      }
      return absl::OkStatus();
    }
    case ValueKind::kNumber: {
      double number = 0;
      if (!absl::SimpleAtod(value, &number) || !std::isfinite(number)) {
        return UsageError(absl::StrCat(what, "='", value, "' is not a finite number"));
      }
      return absl::OkStatus();
    }
    case ValueKind::kDuration: {
      absl::StatusOr<absl::Duration> duration = ParseDurationText(value);
      if (duration.ok()) return absl::OkStatus();
      return UsageError(absl::StrCat(what, "=", duration.status().message()));
    }
    case ValueKind::kChoice:
      return CheckChoice(what, value, flag.choices);
  }
  return absl::OkStatus();
}

// One argument that starts with a dash, taken apart.
struct TypedFlag {
  std::string name;
  std::optional<std::string> value;  // what followed '='
};

TypedFlag SplitFlag(absl::string_view arg) {
  TypedFlag typed;
  arg.remove_prefix(arg.size() > 2 && arg[1] == '-' ? 2 : 1);
  const size_t equals = arg.find('=');
  typed.name = std::string(arg.substr(0, equals));
  if (equals != absl::string_view::npos) typed.value = std::string(arg.substr(equals + 1));
  return typed;
}

// A dash alone is standard input's name, and "-1" a number: neither is a flag.
bool LooksLikeFlag(absl::string_view arg) {
  return arg.size() > 1 && arg[0] == '-' && (arg[1] < '0' || arg[1] > '9') && arg[1] != '.';
}

// The command may come after global flags, so it is looked up before flags are understood: the
// first argument that is neither a flag nor a global flag's value.
absl::StatusOr<const Command*> FindCommand(const CommandTable& table,
                                           std::span<const char* const> argv) {
  for (size_t i = 0; i < argv.size(); ++i) {
    const absl::string_view arg = argv[i];
    if (LooksLikeFlag(arg)) {
      const TypedFlag typed = SplitFlag(arg);
      const Flag* flag = FindFlag(table.global_flags, typed.name);
      if (flag != nullptr && flag->kind != ValueKind::kSwitch && !typed.value) ++i;
      continue;
    }
    if (const Command* command = table.Find(arg)) return command;
    for (const MovedCommand& moved : table.moved) {
      if (arg == moved.name) {
        return UsageError(
            absl::StrCat(table.program, " has no command '", arg, "'; ", moved.remedy));
      }
    }
    std::vector<absl::string_view> names;
    for (const Command* command : table.commands) {
      if (!command->hidden) names.push_back(command->name);
    }
    return UsageError(absl::StrCat("unknown command '", arg, "'", DidYouMean(arg, names), " ('",
                                   table.program, " help' lists them)"));
  }
  return UsageError(absl::StrCat("no command given ('", table.program, " help' lists them)"));
}

absl::Status CheckPositionals(const CommandTable& table, const Command& command,
                              const std::vector<std::string>& given) {
  if (given.size() > command.positionals.size()) {
    const size_t most = command.positionals.size();
    return UsageError(absl::StrCat("'", given[most], "': ", command.name, " takes at most ", most,
                                   most == 1 ? " argument" : " arguments", "; see '", table.program,
                                   " help ", command.name, "'"));
  }
  for (size_t i = 0; i < command.positionals.size(); ++i) {
    const Positional& positional = command.positionals[i];
    if (i >= given.size()) {
      if (!positional.required) continue;
      return UsageError(absl::StrCat(command.name, " needs ", positional.name, " (",
                                     positional.help, "); see '", table.program, " help ",
                                     command.name, "'"));
    }
    if (positional.kind != ValueKind::kChoice) continue;
    GEMMD_RETURN_IF_ERROR(CheckChoice(positional.name, given[i], positional.choices));
  }
  return absl::OkStatus();
}

}  // namespace

const Command* CommandTable::Find(absl::string_view name) const {
  for (const Command* command : commands) {
    if (command->name == name) return command;
  }
  return nullptr;
}

absl::StatusOr<absl::Duration> ParseDurationText(absl::string_view text) {
  absl::Duration duration;
  double seconds = 0;
  absl::string_view days = text;
  if (absl::SimpleAtod(text, &seconds)) {
    duration = absl::Seconds(seconds);
  } else if (absl::ConsumeSuffix(&days, "d") && absl::SimpleAtod(days, &seconds)) {
    duration = absl::Hours(24 * seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    return UsageError(absl::StrCat("'", text, "' is not a duration; write 250ms, 5s, 2m or 90d"));
  }
  if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration()) {
    return UsageError(absl::StrCat("'", text, "' is not a finite duration above 0"));
  }
  return duration;
}

absl::StatusOr<Args> ParseArgs(const CommandTable& table, std::span<const char* const> argv) {
  GEMMD_ASSIGN_OR_RETURN(const Command* command, FindCommand(table, argv));
  Args args;
  args.command_ = command;
  args.global_flags_ = table.global_flags;
  bool command_seen = false;
  bool flags_over = false;
  for (size_t i = 0; i < argv.size(); ++i) {
    const absl::string_view arg = argv[i];
    if (!flags_over && arg == "--") {
      flags_over = true;
      continue;
    }
    if (flags_over || !LooksLikeFlag(arg)) {
      if (command_seen) args.positionals_.emplace_back(arg);
      command_seen = true;
      continue;
    }
    TypedFlag typed = SplitFlag(arg);
    const Flag* flag = FindFlag(command->flags, typed.name);
    if (flag == nullptr) flag = FindFlag(table.global_flags, typed.name);
    if (flag == nullptr) {
      std::vector<absl::string_view> names;
      for (const Flag& known : command->flags) names.push_back(known.name);
      for (const Flag& known : table.global_flags) names.push_back(known.name);
      return UsageError(absl::StrCat("unknown flag '", arg, "' for ", command->name,
                                     DidYouMean(typed.name, names, "--"), " (see '", table.program,
                                     " help ", command->name, "')"));
    }
    if (flag->kind == ValueKind::kSwitch) {
      if (typed.value) return UsageError(absl::StrCat("--", flag->name, " takes no value"));
      typed.value = "true";
    } else if (!typed.value) {
      if (i + 1 == argv.size()) {
        return UsageError(absl::StrCat("--", flag->name, " needs a value (", flag->value, ")"));
      }
      typed.value = argv[++i];
    }
    GEMMD_RETURN_IF_ERROR(CheckValue(*flag, *typed.value));
    if (!args.values_.emplace(flag->name, *typed.value).second) {
      return UsageError(absl::StrCat("--", flag->name, " is given twice"));
    }
  }
  if (!args.On("help")) GEMMD_RETURN_IF_ERROR(CheckPositionals(table, *command, args.positionals_));
  return args;
}

bool Args::Given(absl::string_view flag) const { return values_.find(flag) != values_.end(); }

bool Args::On(absl::string_view flag) const {
  Declared(flag, ValueKind::kSwitch);
  return Given(flag);
}

std::string Args::Text(absl::string_view flag) const {
  return std::string(ValueOf(Declared(flag, ValueKind::kText)));
}

int64_t Args::Count(absl::string_view flag) const {
  int64_t count = 0;
  (void)absl::SimpleAtoi(ValueOf(Declared(flag, ValueKind::kCount)), &count);
  return count;
}

double Args::Number(absl::string_view flag) const {
  double number = 0;
  (void)absl::SimpleAtod(ValueOf(Declared(flag, ValueKind::kNumber)), &number);
  return number;
}

absl::Duration Args::Duration(absl::string_view flag) const {
  const absl::string_view value = ValueOf(Declared(flag, ValueKind::kDuration));
  return value.empty() ? absl::InfiniteDuration() : ParseDurationText(value).value();
}

std::string Args::Positional(size_t index) const {
  return index < positionals_.size() ? positionals_[index] : "";
}

const Flag& Args::Declared(absl::string_view name, ValueKind kind) const {
  const Flag* flag = FindFlag(command_->flags, name);
  if (flag == nullptr) flag = FindFlag(global_flags_, name);
  // Text serves what is text in the end.
  const bool is_text =
      flag != nullptr && (flag->kind == ValueKind::kFile || flag->kind == ValueKind::kChoice);
  if (flag == nullptr || (flag->kind != kind && !(kind == ValueKind::kText && is_text)))
    std::abort();
  return *flag;
}

absl::string_view Args::ValueOf(const Flag& flag) const {
  auto found = values_.find(flag.name);
  return found == values_.end() ? flag.fallback : absl::string_view(found->second);
}

}  // namespace gemmd::cli
