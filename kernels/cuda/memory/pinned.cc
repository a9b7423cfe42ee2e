#include "kernels/cuda/memory/pinned.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "absl/numeric/bits.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd::kernels::cuda {

PinnedBlock::~PinnedBlock() {
  if (pool_ != nullptr) pool_->Give(data_, log2_);
}

PinnedPool::~PinnedPool() {
  // Without it the calls would make a context on device 0, whoever's that is.
  cudaSetDevice(ordinal_);
  for (const auto& blocks : idle_) {
    for (std::byte* data : blocks) cudaFreeHost(data);
  }
}

absl::StatusOr<PinnedBlock> PinnedPool::Take(int64_t bytes) {
  const int log2 = std::max<int>(kMinLog2, absl::bit_width(static_cast<uint64_t>(bytes - 1)));
  if (log2 > kMaxLog2) {
    return absl::ResourceExhaustedError(absl::StrCat(
        bytes, " bytes of pinned memory exceed ", int64_t{1} << kMaxLog2, "; send them in parts"));
  }
  {
    absl::MutexLock lock(&mutex_);
    if (!idle_[log2].empty()) {
      std::byte* data = idle_[log2].back();
      idle_[log2].pop_back();
      idle_bytes_ -= int64_t{1} << log2;
      return PinnedBlock(this, data, log2);
    }
  }
  const absl::StatusOr<std::byte*> data = Pin(size_t{1} << log2);
  if (!data.ok()) return data.status();
  bytes_.fetch_add(int64_t{1} << log2, std::memory_order_relaxed);
  return PinnedBlock(this, *data, log2);
}

absl::StatusOr<std::byte*> PinnedPool::Pin(size_t bytes) {
  void* data = nullptr;
  absl::Status status;
  // All of the memory is allocated in the call, by its thread.
  const absl::Status bound = RunOnNode(node_, [&] {
    status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
    if (!status.ok()) return;
    status = fence_.Check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                          absl::StrCat("pinning ", bytes, " bytes of host memory"));
  });
  bound.IgnoreError();  // then it lies elsewhere, which is slower and as good
  if (!status.ok()) return status;
  return static_cast<std::byte*>(data);
}

void PinnedPool::Give(std::byte* data, int log2) {
  {
    absl::MutexLock lock(&mutex_);
    if (idle_bytes_ + (int64_t{1} << log2) <= kMaxIdleBytes) {
      idle_bytes_ += int64_t{1} << log2;
      idle_[log2].push_back(data);
      return;
    }
  }
  bytes_.fetch_sub(int64_t{1} << log2, std::memory_order_relaxed);
  fence_.Check(cudaSetDevice(ordinal_), "choosing the device").IgnoreError();
  fence_.Check(cudaFreeHost(data), "unpinning host memory").IgnoreError();
}

}  // namespace gemmd::kernels::cuda
