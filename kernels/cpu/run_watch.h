// RunWatch: whether the program that runs is to go on. One run's; its ops look at it between pieces
// of their work.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/stop.h"

namespace gemmd::kernels::cpu {

// Thread-safe: an op's threads look at it at once. Once it has said stop it says nothing else.
class RunWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // `start` and `started` are one moment, on two clocks. `stop` may be null.
  RunWatch(const Stop* stop, Clock::time_point start, absl::Time started) : stop_(stop) {
    if (stop == nullptr) return;
    const absl::Duration until_deadline = stop->deadline() - started;
    if (until_deadline < stop->limit()) at_end_ = StopCause::kDeadline;
    // A century hence is never, and does not overflow.
    const absl::Duration most = std::min(until_deadline, stop->limit());
    if (most < absl::Hours(24 * 36500)) end_ = start + absl::ToChronoNanoseconds(most);
  }

  bool Stopped() { return StoppedAt(Clock::now()); }
  // The same for a caller that has just looked at the clock.
  bool StoppedAt(Clock::time_point now) {
    if (cause() != StopCause::kNone) return true;
    if (stop_ == nullptr) return false;
    if (stop_->asked()) {
      cause_.store(StopCause::kAsked, std::memory_order_relaxed);
    } else if (now >= end_) {
      cause_.store(at_end_, std::memory_order_relaxed);
    } else {
      return false;
    }
    return true;
  }
  StopCause cause() const { return cause_.load(std::memory_order_relaxed); }

 private:
  const Stop* const stop_;
  Clock::time_point end_ = Clock::time_point::max();
  StopCause at_end_ = StopCause::kLimit;
  std::atomic<StopCause> cause_ = StopCause::kNone;
};

}  // namespace gemmd::kernels::cpu
