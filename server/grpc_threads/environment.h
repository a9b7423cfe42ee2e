// A setting that comes as a number in the environment.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace gemmd::grpc_threads {

// 0 when it is unset, negative or no number.
inline int64_t FromEnvironment(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::max<int64_t>(std::atoll(text), 0);
}

}  // namespace gemmd::grpc_threads
