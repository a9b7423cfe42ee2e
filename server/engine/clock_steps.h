// ClockSteps: whether the machine's clock was set, which no time that is kept here may follow: by
// an hour back, a dead client's session would live an hour longer, and by one forward all would
// end.

#pragma once

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace gemmd::server {

// Not thread-safe.
class ClockSteps {
 public:
  using Steady = std::chrono::steady_clock::time_point;

  ClockSteps() : ClockSteps(absl::Now(), std::chrono::steady_clock::now()) {}
  ClockSteps(absl::Time wall, Steady steady) : ahead_(Ahead(wall, steady)) {}

  // By how much the clock was set since this was last asked. Zero for less than a second: what a
  // clock is slewed by, or what passes between reading the one and the other, adds up until then.
  absl::Duration Take() { return Take(absl::Now(), std::chrono::steady_clock::now()); }
  absl::Duration Take(absl::Time wall, Steady steady) {
    const absl::Duration now = Ahead(wall, steady);
    const absl::Duration step = now - ahead_;
    if (absl::AbsDuration(step) < absl::Seconds(1)) return absl::ZeroDuration();
    ahead_ = now;
    return step;
  }

 private:
  static absl::Duration Ahead(absl::Time wall, Steady steady) {
    return wall - absl::UnixEpoch() - absl::FromChrono(steady.time_since_epoch());
  }

  absl::Duration ahead_;  // the clock, of the steady one
};

}  // namespace gemmd::server
