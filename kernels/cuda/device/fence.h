// Fence: whether a device still serves. After a sticky CUDA error nothing more runs on it in this
// process, nor on the process's other GPUs, which find out at their next call. Whoever sees one
// raises the fence, and everybody else fails at once with its status instead of finding out call by
// call.

#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace gemmd::kernels::cuda {

// Thread-safe. Never comes down again.
class Fence {
 public:
  explicit Fence(std::string device) : device_(std::move(device)) {}

  // OK while the device serves; then a DeviceFault with the first fatal error.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mutex_);

  // OK for success. A sticky error raises the fence and gives its status; the others give
  // ToStatus (cuda_status.h). Clears the calling thread's last error.
  absl::Status Check(cudaError_t code, std::string_view what);
  // The same for what the launchers of gemm.h return: they report sticky errors as UNAVAILABLE.
  absl::Status Check(absl::Status status);

  // Raises it, whatever the error, and returns its status: for waits, which fail only by errors of
  // work that was under way.
  absl::Status Raise(const absl::Status& cause) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::string device_;
  std::atomic<bool> raised_{false};  // set once status_ is
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda
