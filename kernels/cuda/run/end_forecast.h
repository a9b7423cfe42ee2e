// EndForecast: when a program that ran before is about to end. A host thread that sleeps until the
// device wakes it is late by tens to hundreds of microseconds, the more the longer it slept; one
// that wakes by itself a little earlier and looks is not.

#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace gemmd::kernels::cuda {

// Thread-safe.
class EndForecast {
 public:
  // A run was seen to end so long after it began.
  void Observe(absl::Duration took);
  // How long the next one takes, rather too short than too long: a shorter run counts at once, a
  // longer one by an eighth. Zero before the first.
  absl::Duration usual() const {
    return absl::Nanoseconds(usual_ns_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<int64_t> usual_ns_{0};
};

// How to wait for an end: first asleep, then looking for it, then, if it is late, asleep until the
// device tells. Both are zero when it is better to leave it to the device at once.
struct EndWait {
  absl::Duration sleep;
  absl::Duration look;
};
// Of a program that began `passed` ago and usually takes `usual`.
EndWait WaitFor(absl::Duration usual, absl::Duration passed);

}  // namespace gemmd::kernels::cuda
