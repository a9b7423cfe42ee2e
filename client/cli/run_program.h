// Another program, run to its end.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::cli {

struct ProgramEnd {
  int exit_status = 0;  // as a shell has it: 127 not found, 128 + signal
  std::string out;      // what it wrote to stdout
  std::string error;    // and to stderr
};

// No shell in between; command[0] is looked up on PATH unless it holds a slash.
absl::StatusOr<ProgramEnd> RunProgram(const std::vector<std::string>& command);

}  // namespace gemmd::cli
