// ClockSteps: whether a clock was set, which no time that is kept here may follow: by an hour
// back, a dead client's session would live an hour longer, and by one forward all would end.

#pragma once

#include "absl/time/time.h"

namespace gemmd::server {

// Not thread-safe.
class ClockSteps {
 public:
  // `ahead`: what Clock::Ahead() says.
  explicit ClockSteps(absl::Duration ahead) : ahead_(ahead) {}

  // By how much the clock was set since this was last asked. Zero for less than a second: what a
  // clock is slewed by, or what passes between reading the one and the other, adds up until then.
  absl::Duration Take(absl::Duration ahead) {
    const absl::Duration step = ahead - ahead_;
    if (absl::AbsDuration(step) < absl::Seconds(1)) return absl::ZeroDuration();
    ahead_ = ahead;
    return step;
  }

 private:
  absl::Duration ahead_;
};

}  // namespace gemmd::server
