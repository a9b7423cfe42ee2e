// A command line against a CommandTable.
//
// Global flags may stand anywhere, a command's own after its name: `--name value`, `--name=value`,
// `-o value`. `--` ends them. A flag given twice is an error, not a silent win for the last one.

#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cli/args/command.h"

namespace gemmd::cli {

// The values of one call, checked against their kinds. Asking for a flag that the command does not
// declare, or with the wrong getter, is a fault in gemmctl and ends the process.
class Args {
 public:
  const Command& command() const { return *command_; }

  bool Given(absl::string_view flag) const;  // typed by the user, not a default
  bool On(absl::string_view flag) const;     // kSwitch
  std::string Text(
      absl::string_view flag) const;  // kText, kFile, kChoice; "" when absent without default
  int64_t Count(absl::string_view flag) const;  // kCount; 0 when absent without default
  double Number(absl::string_view flag) const;  // kNumber; 0 when absent without default
  absl::Duration Duration(
      absl::string_view flag) const;  // kDuration; infinite when absent without default

  // The i-th argument, "" when it is optional and absent.
  std::string Positional(size_t index) const;

 private:
  friend absl::StatusOr<Args> ParseArgs(const CommandTable& table,
                                        std::span<const char* const> argv);
  const Flag& Declared(absl::string_view flag, ValueKind kind) const;
  absl::string_view ValueOf(const Flag& flag) const;

  const Command* command_ = nullptr;
  std::span<const Flag> global_flags_;
  std::map<std::string, std::string, std::less<>> values_;  // by flag name; what was typed
  std::vector<std::string> positionals_;
};

// `argv` without the program's name. INVALID_ARGUMENT marked ExitCode::kUsage, with the nearest
// known name where a name is unknown. With --help given, missing arguments are no error.
absl::StatusOr<Args> ParseArgs(const CommandTable& table, std::span<const char* const> argv);

// "250ms", "5s", "1.5m", "90d", "3": seconds when there is no unit.
absl::StatusOr<absl::Duration> ParseDurationText(absl::string_view text);

}  // namespace gemmd::cli
