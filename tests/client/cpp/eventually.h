// Waits for what another thread brings about: the fake daemon's state, a callback's.

#pragma once

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gemmd::client {

// True once `condition` holds; false after a minute, which is a failure and no measure of speed.
inline bool Eventually(absl::FunctionRef<bool()> condition) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Microseconds(200));
  }
  return true;
}

}  // namespace gemmd::client
