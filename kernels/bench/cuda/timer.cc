#include "kernels/bench/cuda/timer.h"

#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/bench/cuda/mark.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {

using cuda::ToStatus;

absl::Status Flush::Prepare(bool code, int sms, int64_t size_bytes) {
  code_ = code;
  sms_ = sms;
  size_bytes_ = size_bytes;
  return buffer_.Reserve(size_bytes);
}

absl::Status Flush::QueueMark(cudaStream_t stream) const {
  const cudaError_t code =
      code_ ? LaunchOtherCode(buffer_.as<float>(), sms_, stream) : LaunchMark(stream);
  return ToStatus(code, "a mark");
}

absl::Status Flush::QueueL2(cudaStream_t stream) const {
  return ToStatus(cudaMemsetAsync(buffer_.data(), 0, size_bytes_, stream), "flushing L2");
}

absl::Status WaitIdle(cudaStream_t stream, double limit_s) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (;;) {
    const cudaError_t code = cudaStreamQuery(stream);
    if (code != cudaErrorNotReady) return ToStatus(code, "waiting for the device");
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited > limit_s) {
      return absl::DeadlineExceededError(
          absl::StrCat("the device did not finish within ", limit_s, " s: a kernel hangs"));
    }
    // Short at first: most waits are for a few microseconds of work.
    if (waited > 1e-3) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace gemmd::kernels::bench
