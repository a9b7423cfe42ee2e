#include "kernels/cuda/run/mark_rounds.h"

#include <cstddef>

#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/run/stream_signal.h"

namespace gemmd::kernels::cuda {

MarkRounds::~MarkRounds() {
  if (waits_ == nullptr) return;
  cudaStreamSynchronize(waits_);
  cudaStreamDestroy(waits_);
  cudaFree(rounds_);
}

absl::StatusOr<cudaStream_t> MarkRounds::Begin() {
  if (rounds_ != nullptr) return waits_;
  cudaError_t code = cudaSuccess;
  if (waits_ == nullptr) code = cudaStreamCreateWithFlags(&waits_, cudaStreamNonBlocking);
  void* rounds = nullptr;
  // Not of a pool: the driver refuses to write such a word.
  if (code == cudaSuccess) code = cudaMalloc(&rounds, sizeof(*rounds_));
  if (code == cudaSuccess) code = cudaMemsetAsync(rounds, 0, sizeof(*rounds_), waits_);
  // Once: kernels on another stream read it from here on.
  if (code == cudaSuccess) code = cudaStreamSynchronize(waits_);
  if (code != cudaSuccess) {
    cudaFree(rounds);
    return ToStatus(code, "making a word that tells of marks");
  }
  rounds_ = static_cast<uint32_t*>(rounds);
  return waits_;
}

absl::Status MarkRounds::Await(cudaStream_t stream) {
  absl::Status told = QueueSignal(waits_, reinterpret_cast<std::byte*>(rounds_), round_ + 1);
  if (!told.ok()) return told;
  return ToStatus(LaunchAwaitRound(rounds_, ++round_, stream), "launching a wait for marks");
}

}  // namespace gemmd::kernels::cuda
