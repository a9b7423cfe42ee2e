// Staging: copies between ordinary host memory and the device, by way of a ring of pinned slots.
// While the copy engine moves one slot, the host fills or empties the next.

#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/fence.h"
#include "kernels/cuda/memory/pinned.h"

namespace gemmd::kernels::cuda {

// Thread-safe; copies of several threads share the slots and the copy streams, one a direction.
class Staging {
 public:
  static constexpr int kSlots = 8;
  static constexpr int kSlotsPerCopy = 3;  // one filling, one flying, one between
  static constexpr int64_t kSlotBytes = 4 << 20;

  // `pool` and `fence` outlive it. Pins its slots. When the device refuses the streams, every copy
  // fails with its status.
  Staging(int ordinal, PinnedPool& pool, Fence& fence);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Both return when the bytes have arrived. Ordered with nothing else on the device. Sources lie
  // one behind the other in a slot and travel at once: each wait for the device costs 10 to 20 us,
  // as much as copying a megabyte to it does.
  absl::Status CopyIn(std::byte* device, Memory::Sources sources);
  absl::Status CopyOut(const std::byte* device, absl::Span<std::byte> target);

 private:
  struct Slot {
    PinnedBlock block;  // empty: it was refused
    cudaEvent_t arrived = nullptr;
  };
  struct Piece {
    Slot* slot;
    int64_t offset;
    int64_t bytes;
  };
  using Step = absl::FunctionRef<void(const Piece&)>;
  using Start = absl::FunctionRef<cudaError_t(const Piece&)>;

  // Cuts [0, size_bytes) in pieces; for each: `start` queues its copy on `stream`, and when it has
  // arrived, `finish`.
  absl::Status Run(int64_t size_bytes, cudaStream_t stream, Start start, Step finish)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Prepare(Slot& slot);
  Slot* Take(bool wait)
      ABSL_LOCKS_EXCLUDED(mutex_);  // null when none is free and `wait` is not set
  void Give(Slot* slot) ABSL_LOCKS_EXCLUDED(mutex_);

  const int ordinal_;
  PinnedPool& pool_;
  Fence& fence_;
  absl::Status ready_;
  cudaStream_t in_ = nullptr;
  cudaStream_t out_ = nullptr;
  std::array<Slot, kSlots> slots_;
  absl::Mutex mutex_;
  std::vector<Slot*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda
