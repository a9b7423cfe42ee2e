// EventPool: CUDA events that are used again, since making one takes longer than recording it.

#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/device/fence.h"

namespace gemmd::kernels::cuda {

// How a host thread learns of an event: by asking, or asleep in cudaEventSynchronize. Each record
// of one that may be slept for interrupts a processor when it is reached, whether anybody sleeps or
// not; synchronising with the other kind spins.
enum class Awaited { kByAsking, kAsleep };

// Goes back to its pool with the last copy.
using EventRef = std::shared_ptr<CUevent_st>;

// Thread-safe. Owns the events, those that are out too until they come back; all are back when it
// is destroyed.
class EventPool {
 public:
  explicit EventPool(Fence& fence) : fence_(fence) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event that keeps time, of the current device. When it goes back, what was recorded has
  // happened, or does not matter any more.
  absl::StatusOr<EventRef> Take(Awaited awaited) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  EventRef Out(cudaEvent_t event, Awaited awaited);
  void Give(cudaEvent_t event, Awaited awaited) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<cudaEvent_t>& FreeOnes(Awaited awaited) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return free_[static_cast<int>(awaited)];
  }

  Fence& fence_;
  absl::Mutex mutex_;
  std::array<std::vector<cudaEvent_t>, 2> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda
