// Stop: tells a program that runs to end early, between two ops or between two pieces of a long
// one.
//
//   Stop stop;                                  // lives until the launch's `done` has run
//   stop.Arm(deadline, absl::Seconds(60));      // before the launch
//   bindings.stop = &stop;
//   stop.Ask();                                 // from any thread, whenever it is wanted

#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace gemmd::kernels {

// Why a program ended before its last op.
enum class StopCause : uint8_t {
  kNone,      // it did not
  kLimit,     // it ran for longer than it may
  kDeadline,  // its deadline passed
  kAsked,     // Stop::Ask
};

// A backend looks at it before each op that it has not yet given to the device. What a GPU was
// given runs on; the CPU backend looks again within an op, a few times in 100 ms.
class Stop {
 public:
  // `limit` counts from the start of the first op.
  void Arm(absl::Time deadline, absl::Duration limit) {
    deadline_ = deadline;
    limit_ = limit;
  }
  absl::Time deadline() const { return deadline_; }
  absl::Duration limit() const { return limit_; }

  // Thread-safe, and for good.
  void Ask() { asked_.store(true, std::memory_order_relaxed); }
  bool asked() const { return asked_.load(std::memory_order_relaxed); }

 private:
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Duration limit_ = absl::InfiniteDuration();
  std::atomic<bool> asked_ = false;
};

}  // namespace gemmd::kernels
