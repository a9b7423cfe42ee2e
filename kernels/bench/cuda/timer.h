// Timer: how long the device works on a call, launch gaps left out, L2 cold.

#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/bench/cuda/device_buffer.h"

namespace gemmd::kernels::bench {

// Queues work on the stream; may be called any number of times.
using Call = std::function<absl::Status(cudaStream_t)>;

// Takes from the caches what earlier calls left there.
class Flush {
 public:
  // `code`: from the SMs' instruction caches too, on each of `sms`. From L2 by `size_bytes`.
  absl::Status Prepare(bool code, int sms, int64_t size_bytes);

  // The mark before a timed call: other code on every SM, or without `code` an empty kernel. A
  // kernel is faster where it finds its own code in an SM's caches, which depends on what ran
  // before.
  absl::Status QueueMark(cudaStream_t stream) const;
  // Overwrites the buffer, so that nothing an earlier call touched is in L2.
  absl::Status QueueL2(cudaStream_t stream) const;
  const DeviceBuffer& buffer() const { return buffer_; }

 private:
  DeviceBuffer buffer_;
  int64_t size_bytes_ = 0;
  bool code_ = false;
  int sms_ = 0;
};

class Timer {
 public:
  virtual ~Timer() = default;

  // "cupti": first start to last end of the kernels of a call, by the profiler's clock. "events":
  // CUDA events around the call in a graph, less the same around an empty kernel.
  virtual std::string method() const = 0;

  // Runs every call `repeats` times, by turns, so that a drift of the clock hits all alike. Returns
  // seconds, [call][repeat]. Before each call, caches are flushed.
  virtual absl::StatusOr<std::vector<std::vector<double>>> Time(absl::Span<const Call> calls,
                                                                int repeats) = 0;
};

inline constexpr double kHangSeconds = 30;

// Waits until `stream` is idle. DEADLINE_EXCEEDED when it is not within `limit_s`: a kernel that
// hangs must not take the machine's time with it.
absl::Status WaitIdle(cudaStream_t stream, double limit_s = kHangSeconds);

std::unique_ptr<Timer> MakeEventTimer(const Flush& flush, cudaStream_t stream);

}  // namespace gemmd::kernels::bench
