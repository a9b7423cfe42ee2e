// What a call of this folder came to: a code of google.rpc.Code and, unless it is 0, a message.
// Plain C++ without Abseil, because the Python package compiles these files by itself.

#pragma once

#include <string>
#include <utility>

namespace gemmd::armed {

enum class Code : int {
  kOk = 0,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kFailedPrecondition = 9,
  kInternal = 13,
  kUnavailable = 14,
};

struct [[nodiscard]] Outcome {
  Outcome() = default;
  Outcome(Code code, std::string message) : code(code), message(std::move(message)) {}

  bool ok() const { return code == Code::kOk; }

  Code code = Code::kOk;
  std::string message;
};

}  // namespace gemmd::armed
