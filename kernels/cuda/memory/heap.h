// Heap: device memory in pieces. Small ones are cut from slabs, because cudaMalloc and cudaFree
// wait for the whole device; large ones are allocations of their own, and go back to the device at
// once.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/fence.h"
#include "kernels/cuda/memory/free_list.h"

namespace gemmd::kernels::cuda {

// Thread-safe. Everything was given back when it is destroyed.
class Heap {
 public:
  static constexpr int64_t kAlignment = 256;
  static constexpr int64_t kSlabBytes = 64 << 20;
  static constexpr int64_t kLargestPiece = kSlabBytes / 4;  // above it: an allocation of its own

  Heap(int ordinal, Fence& fence) : ordinal_(ordinal), fence_(fence) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Bytes that `bytes` take up.
  static int64_t Rounded(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // At least `bytes`, at a multiple of kAlignment, with whatever was there before.
  // RESOURCE_EXHAUSTED when the device has not enough.
  absl::StatusOr<std::byte*> Take(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  // `bytes` as asked for. No work on the device may touch them any more.
  void Give(std::byte* address, int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  // Bytes that `bytes` take up alone: whole blocks, as other processes map them.
  static int64_t RoundedAlone(int64_t bytes) {
    return (bytes + kDeviceSharedBlockBytes - 1) / kDeviceSharedBlockBytes *
           kDeviceSharedBlockBytes;
  }
  // The same in an allocation that holds nothing else, whatever its size, and its end.
  absl::StatusOr<std::byte*> TakeAlone(int64_t bytes) { return Allocate(RoundedAlone(bytes)); }
  void GiveAlone(std::byte* address) { Free(address); }

 private:
  struct Slab {
    std::byte* base;
    FreeList free{kSlabBytes};
  };

  absl::StatusOr<std::byte*> Allocate(int64_t bytes);
  void Free(std::byte* address);

  const int ordinal_;
  Fence& fence_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Slab>> slabs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda
