// Marks: events by which a stream waits for a run on another, of this GPU or of another one. The
// wait is the device's.

#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/fence.h"

namespace gemmd::kernels::cuda {

// The marks of one GPU, used again. Thread-safe. Marks may outlive it.
class MarkPool {
 public:
  MarkPool(int ordinal, Fence& fence) : ordinal_(ordinal), fence_(fence) {}

  absl::StatusOr<std::shared_ptr<Mark>> Make();

 private:
  // Events that keep no time: half of what one that does takes to record.
  struct Events {
    ~Events();
    absl::Mutex mutex;
    std::vector<cudaEvent_t> free ABSL_GUARDED_BY(mutex);
  };

  const int ordinal_;
  Fence& fence_;
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();
};

// Sets the mark behind what is on `stream`, which is of the mark's GPU.
cudaError_t SetMark(const Mark& mark, cudaStream_t stream);
// What `stream` is given from here on begins when all of them are set. Each was set by SetMark
// before, or never will be: then it does not count.
cudaError_t WaitForMarks(absl::Span<const std::shared_ptr<Mark>> marks, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
