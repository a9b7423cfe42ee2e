// EventPool: CUDA events that are used again, since making one takes longer than recording it.

#ifndef GEMMD_KERNELS_CUDA_EVENT_POOL_H_
#define GEMMD_KERNELS_CUDA_EVENT_POOL_H_

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/fence.h"

namespace gemmd::kernels::cuda {

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

  // An event that keeps time, of the current device. A host thread that synchronises with it
  // sleeps. When it goes back, what was recorded has happened, or does not matter any more.
  absl::StatusOr<EventRef> Take() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  EventRef Out(cudaEvent_t event);
  void Give(cudaEvent_t event) ABSL_LOCKS_EXCLUDED(mutex_);

  Fence& fence_;
  absl::Mutex mutex_;
  std::vector<cudaEvent_t> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_EVENT_POOL_H_
