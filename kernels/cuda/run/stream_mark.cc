#include "kernels/cuda/run/stream_mark.h"

#include <utility>

namespace gemmd::kernels::cuda {
namespace {

// Whoever holds it has it in the bindings of a run that sets it or waits for it. So when it goes,
// it has been set and waited for, and its event may be recorded again.
class EventMark final : public Mark {
 public:
  explicit EventMark(std::shared_ptr<CUevent_st> event) : event_(std::move(event)) {}
  cudaEvent_t event() const { return event_.get(); }

 private:
  const std::shared_ptr<CUevent_st> event_;
};

cudaEvent_t EventOf(const Mark& mark) { return static_cast<const EventMark&>(mark).event(); }

}  // namespace

MarkPool::Events::~Events() {
  for (cudaEvent_t event : free) cudaEventDestroy(event);
}

absl::StatusOr<std::shared_ptr<Mark>> MarkPool::Make() {
  cudaEvent_t event = nullptr;
  {
    absl::MutexLock lock(&events_->mutex);
    if (!events_->free.empty()) {
      event = events_->free.back();
      events_->free.pop_back();
    }
  }
  if (event == nullptr) {
    absl::Status status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
    if (status.ok()) {
      status = fence_.Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                            "making an event for other streams");
    }
    if (!status.ok()) return status;
  }
  const auto give_back = [events = events_](cudaEvent_t done) {
    absl::MutexLock lock(&events->mutex);
    events->free.push_back(done);
  };
  return std::make_shared<EventMark>(std::shared_ptr<CUevent_st>(event, give_back));
}

cudaError_t SetMark(const Mark& mark, cudaStream_t stream) {
  return cudaEventRecord(EventOf(mark), stream);
}

cudaError_t WaitForMarks(absl::Span<const std::shared_ptr<Mark>> marks, cudaStream_t stream) {
  for (const std::shared_ptr<Mark>& mark : marks) {
    const cudaError_t code = cudaStreamWaitEvent(stream, EventOf(*mark), 0);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

}  // namespace gemmd::kernels::cuda
