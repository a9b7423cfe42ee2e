#include "kernels/cuda/run/end_forecast.h"

#include <algorithm>

namespace gemmd::kernels::cuda {
namespace {

// Before the forecast end: a sleep is late by a good part of it, and runs differ.
constexpr absl::Duration kAwakeBefore = absl::Microseconds(250);
// After it, and a twentieth of what the run takes.
constexpr absl::Duration kLookAtLeast = absl::Microseconds(100);
// A longer program's answer may be late by a wake: that is less than a hundredth of it.
constexpr absl::Duration kLongest = absl::Milliseconds(20);
// A sleep is not worth less.
constexpr absl::Duration kShortestSleep = absl::Microseconds(100);

}  // namespace

void EndForecast::Observe(absl::Duration took) {
  const int64_t ns = std::max<int64_t>(1, absl::ToInt64Nanoseconds(took));
  const int64_t usual = usual_ns_.load(std::memory_order_relaxed);
  const bool replace = usual == 0 || ns < usual;
  usual_ns_.store(replace ? ns : usual + (ns - usual) / 8, std::memory_order_relaxed);
}

EndWait WaitFor(absl::Duration usual, absl::Duration passed) {
  if (usual <= absl::ZeroDuration() || usual > kLongest) return {};
  const absl::Duration left = usual - passed;
  const absl::Duration late = left + kLookAtLeast + usual / 20;
  if (late <= absl::ZeroDuration()) return {};
  const absl::Duration sleep = left - kAwakeBefore;
  if (sleep < kShortestSleep) return {.sleep = absl::ZeroDuration(), .look = late};
  return {.sleep = sleep, .look = late - sleep};
}

}  // namespace gemmd::kernels::cuda
