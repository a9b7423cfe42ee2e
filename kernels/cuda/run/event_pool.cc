#include "kernels/cuda/run/event_pool.h"

namespace gemmd::kernels::cuda {

EventPool::~EventPool() {
  for (const auto& events : free_) {
    for (cudaEvent_t event : events) cudaEventDestroy(event);
  }
}

EventRef EventPool::Out(cudaEvent_t event, Awaited awaited) {
  return EventRef(event, [this, awaited](cudaEvent_t done) { Give(done, awaited); });
}

absl::StatusOr<EventRef> EventPool::Take(Awaited awaited) {
  {
    absl::MutexLock lock(&mutex_);
    std::vector<cudaEvent_t>& free = FreeOnes(awaited);
    if (!free.empty()) {
      const cudaEvent_t event = free.back();
      free.pop_back();
      return Out(event, awaited);
    }
  }
  cudaEvent_t event = nullptr;
  const unsigned flags = awaited == Awaited::kAsleep ? cudaEventBlockingSync : cudaEventDefault;
  const absl::Status status =
      fence_.Check(cudaEventCreateWithFlags(&event, flags), "making an event");
  if (!status.ok()) return status;
  return Out(event, awaited);
}

void EventPool::Give(cudaEvent_t event, Awaited awaited) {
  absl::MutexLock lock(&mutex_);
  FreeOnes(awaited).push_back(event);
}

}  // namespace gemmd::kernels::cuda
