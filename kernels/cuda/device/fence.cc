#include "kernels/cuda/device/fence.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/fault.h"

namespace gemmd::kernels::cuda {

absl::Status Fence::status() const {
  if (!raised_.load(std::memory_order_acquire)) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return status_;
}

absl::Status Fence::Check(cudaError_t code, std::string_view what) {
  if (code == cudaSuccess) return absl::OkStatus();
  return Check(ToStatus(code, what));
}

absl::Status Fence::Check(absl::Status status) {
  if (status.ok()) return status;
  cudaGetLastError();  // else the next launch that asks would be told of this one
  return absl::IsUnavailable(status) ? Raise(status) : std::move(status);
}

absl::Status Fence::Raise(const absl::Status& cause) {
  absl::MutexLock lock(&mutex_);
  if (status_.ok()) {
    const std::string message =
        absl::StrCat("device ", device_, " is fenced after a fatal error (", cause.message(),
                     "); its work fails until the process restarts; use another device");
    status_ = DeviceFault(message);
    raised_.store(true, std::memory_order_release);
  }
  return status_;
}

}  // namespace gemmd::kernels::cuda
