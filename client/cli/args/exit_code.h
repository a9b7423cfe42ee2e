// What gemmctl's exit status means, and how an absl::Status carries it from a command to main.

#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd::cli {

// Scripts depend on these numbers: add, never renumber.
enum class ExitCode : int {
  kOk = 0,
  kCheckFailed = 1,
  kUsage = 2,
  kBadFile = 3,
  kUnreachable = 4,
  kRefused = 5,
  kInternal = 6,
  kInterrupted = 130,
  kBrokenPipe = 141,
};

struct ExitCodeMeaning {
  ExitCode code;
  absl::string_view name;  // in --json errors: "usage"
  absl::string_view meaning;
};

// Every code, ascending: what `gemmctl help exit-codes` prints.
std::span<const ExitCodeMeaning> ExitCodes();
absl::string_view ExitCodeName(ExitCode code);

// The same status, marked with the exit code that it must end the program with. `status` must not
// be OK.
absl::Status WithExit(ExitCode code, absl::Status status);

bool HasExit(const absl::Status& status);

// The mark if there is one; otherwise what the code of an RPC's status says: UNAVAILABLE and
// DEADLINE_EXCEEDED are kUnreachable, INTERNAL and UNKNOWN kInternal, the others kRefused.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace gemmd::cli
