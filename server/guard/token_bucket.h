// TokenBucket: so many at once, so many a second from then on.

#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace gemmd::guard {

struct Rate {
  double burst = 0;
  double per_second = 0;
};

// Not thread-safe.
class TokenBucket {
 public:
  explicit TokenBucket(const Rate& rate) : rate_(rate), left_(rate.burst) {}

  // Takes as many of `count` as there are. How many there were not.
  double TakeUpTo(double count, absl::Time now) {
    const double seconds = std::max(0.0, absl::ToDoubleSeconds(now - last_));
    last_ = now;  // back, too, where the clock was set back: or nothing came until it had caught up
    left_ = std::min(rate_.burst, left_ + seconds * rate_.per_second);
    const double taken = std::min(left_, count);
    left_ -= taken;
    return count - taken;
  }
  // What was taken and turned out to be nobody's to pay.
  void Give(double count) { left_ = std::min(rate_.burst, left_ + count); }
  bool empty(absl::Time now) {
    TakeUpTo(0, now);
    return left_ < 1;
  }
  // False when fewer than `count` are left; then all that were are gone.
  bool Take(double count, absl::Time now) { return TakeUpTo(count, now) <= 0; }

 private:
  Rate rate_;
  double left_;
  absl::Time last_ = absl::UnixEpoch();
};

}  // namespace gemmd::guard
