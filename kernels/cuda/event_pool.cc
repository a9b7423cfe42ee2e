#include "kernels/cuda/event_pool.h"

namespace gemmd::kernels::cuda {

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

EventRef EventPool::Out(cudaEvent_t event) {
  return EventRef(event, [this](cudaEvent_t done) { Give(done); });
}

absl::StatusOr<EventRef> EventPool::Take() {
  {
    absl::MutexLock lock(&mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return Out(event);
    }
  }
  cudaEvent_t event = nullptr;
  const absl::Status status =
      fence_.Check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "making an event");
  if (!status.ok()) return status;
  return Out(event);
}

void EventPool::Give(cudaEvent_t event) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(event);
}

}  // namespace gemmd::kernels::cuda
