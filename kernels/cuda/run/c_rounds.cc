#include "kernels/cuda/run/c_rounds.h"

#include <cstddef>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/run/stream_mark.h"
#include "kernels/cuda/run/stream_signal.h"

namespace gemmd::kernels::cuda {

CRounds::~CRounds() {
  if (waits_ == nullptr) return;
  cudaStreamSynchronize(waits_);
  cudaStreamDestroy(waits_);
  cudaFree(rounds_);
}

absl::Status CRounds::Begin() {
  if (rounds_ != nullptr) return absl::OkStatus();
  cudaError_t code = cudaSuccess;
  if (waits_ == nullptr) code = cudaStreamCreateWithFlags(&waits_, cudaStreamNonBlocking);
  void* rounds = nullptr;
  // Not of a pool: the driver refuses to write such a word.
  if (code == cudaSuccess) code = cudaMalloc(&rounds, sizeof(*rounds_));
  if (code == cudaSuccess) code = cudaMemsetAsync(rounds, 0, sizeof(*rounds_), waits_);
  // Once: kernels on other streams read it from here on.
  if (code == cudaSuccess) code = cudaStreamSynchronize(waits_);
  if (code == cudaSuccess) {
    rounds_ = static_cast<uint32_t*>(rounds);
  } else {
    cudaFree(rounds);
  }
  return ToStatus(code, "making a word that tells when C is there");
}

absl::StatusOr<RoundOfC> CRounds::Await(absl::Span<const std::shared_ptr<Mark>> marks) {
  if (absl::Status begun = Begin(); !begun.ok()) return begun;
  absl::Status status = ToStatus(WaitForMarks(marks, waits_), "waiting for another GPU's C");
  if (status.ok()) {
    status = QueueSignal(waits_, reinterpret_cast<std::byte*>(rounds_), round_ + 1);
  }
  if (!status.ok()) return status;
  return RoundOfC{rounds_, ++round_};
}

}  // namespace gemmd::kernels::cuda
