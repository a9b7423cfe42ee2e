// What Backend's Allocate and imports give on a GPU: pieces of device memory, allocations that
// other processes map, theirs mapped here, and host memory that kernels reach over PCIe.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/memory.h"
#include "kernels/cuda/device/fence.h"
#include "kernels/cuda/device/host_node.h"
#include "kernels/cuda/memory/heap.h"
#include "kernels/cuda/memory/ipc.h"
#include "kernels/cuda/memory/pinned.h"
#include "kernels/cuda/memory/staging.h"

namespace gemmd::kernels::cuda {

struct MemoryLimits {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;  // of kHostShared, own and imported
};

// All memory of one device. Thread-safe; outlives every Memory of it.
class MemorySpace {
 public:
  MemorySpace(const DeviceInfo& info, int ordinal, MemoryLimits limits, PinnedPool& pinned,
              Fence& fence);
  ~MemorySpace();
  MemorySpace(const MemorySpace&) = delete;
  MemorySpace& operator=(const MemorySpace&) = delete;

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t size_bytes, MemoryKind kind);
  absl::StatusOr<std::unique_ptr<Memory>> ImportShared(int fd, int64_t size_bytes);
  absl::StatusOr<std::unique_ptr<Memory>> ImportDevice(const DeviceHandle& handle);

 private:
  class Device;
  class Piece;
  class Alone;
  class Imported;
  class Shared;

  // Sets `bytes` at `address` to zero and waits for it.
  absl::Status Clear(std::byte* address, int64_t bytes);
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePiece(int64_t size_bytes);
  absl::StatusOr<std::unique_ptr<Memory>> AllocateAlone(int64_t size_bytes);
  // Pins host memory and tells its device address. Pages that nobody has touched come to lie on the
  // device's node.
  absl::StatusOr<std::unique_ptr<Memory>> Register(absl::StatusOr<std::unique_ptr<Memory>> host);

  const int ordinal_;
  const IpcDevice ipc_;
  const HostNode& node_;  // of the pinned pool
  Fence& fence_;
  cpu::Budget device_budget_;
  cpu::Budget host_budget_;
  Heap heap_;
  Staging staging_;
  absl::Status ready_;  // of clear_stream_
  cudaStream_t clear_stream_ = nullptr;
};

}  // namespace gemmd::kernels::cuda
