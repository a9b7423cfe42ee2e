#include "kernels/cuda/memory/heap.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/memory/returned.h"

namespace gemmd::kernels::cuda {

Heap::~Heap() {
  for (const auto& slab : slabs_) Free(slab->base);
}

absl::StatusOr<std::byte*> Heap::Allocate(int64_t bytes) {
  absl::Status status = fence_.Check(cudaSetDevice(ordinal_), "choosing the device");
  void* address = nullptr;
  if (status.ok()) {
    status = fence_.Check(
        cudaMalloc(&address, static_cast<size_t>(bytes)),
        absl::StrCat("allocating ", bytes, " bytes of device memory; delete buffers first"));
  }
  if (!status.ok()) return status;
  return static_cast<std::byte*>(address);
}

void Heap::Free(std::byte* address) {
  // On a fenced device both fail, and the memory is lost until the process ends.
  fence_.Check(cudaSetDevice(ordinal_), "choosing the device").IgnoreError();
  CountMemoryReturn();
  fence_.Check(cudaFree(address), "freeing device memory").IgnoreError();
}

absl::StatusOr<std::byte*> Heap::Take(int64_t bytes) {
  const int64_t rounded = Rounded(bytes);
  if (rounded > kLargestPiece) return Allocate(rounded);
  const auto take = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> std::byte* {
    for (const auto& slab : slabs_) {
      if (slab->free.largest() < rounded) continue;
      return slab->base + *slab->free.Take(rounded);
    }
    return nullptr;
  };
  {
    absl::MutexLock lock(&mutex_);
    if (std::byte* address = take()) return address;
  }
  // Not under the lock: cudaMalloc may wait for the device. Two threads may both come here; the
  // slab that is not needed serves later.
  const absl::StatusOr<std::byte*> base = Allocate(kSlabBytes);
  if (!base.ok()) return base.status();
  absl::MutexLock lock(&mutex_);
  slabs_.push_back(std::make_unique<Slab>(Slab{*base}));
  return take();
}

void Heap::Give(std::byte* address, int64_t bytes) {
  const int64_t rounded = Rounded(bytes);
  if (rounded > kLargestPiece) return Free(address);
  std::unique_ptr<Slab> spare;
  {
    absl::MutexLock lock(&mutex_);
    const auto owner = std::find_if(slabs_.begin(), slabs_.end(), [&](const auto& slab) {
      return address >= slab->base && address < slab->base + kSlabBytes;
    });
    (*owner)->free.Give(address - (*owner)->base, rounded);
    if (!(*owner)->free.unused()) return;
    // One unused slab stays, so that a buffer made and deleted in turn does not make slabs.
    const auto unused = std::count_if(slabs_.begin(), slabs_.end(),
                                      [](const auto& slab) { return slab->free.unused(); });
    if (unused < 2) return;
    spare = std::move(*owner);
    slabs_.erase(owner);
  }
  Free(spare->base);
}

}  // namespace gemmd::kernels::cuda
