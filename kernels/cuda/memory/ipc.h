// CUDA IPC: device memory that two processes of one host use. One makes a handle of an allocation's
// base, the other opens it and reaches the same bytes at an address of its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/fence.h"

namespace gemmd::kernels::cuda {

// The device that imports, as far as its checks need it.
struct IpcDevice {
  std::string name;      // "cuda:0", for messages
  std::string gpu_uuid;  // DeviceInfo::gpu_uuid
  int ordinal = 0;
};

// What can be told of a handle without the driver. INVALID_ARGUMENT for sizes that cannot be,
// FAILED_PRECONDITION for another GPU's memory.
absl::Status CheckIpcHandle(const DeviceHandle& handle, const IpcDevice& device);

// The handle of the allocation that begins at `base`, which cudaMalloc gave on device `ordinal`.
absl::StatusOr<std::string> MakeIpcHandle(std::byte* base, int ordinal, Fence& fence);

// Another process's memory, mapped here. Move-only; unmaps it, before which no work on the device
// may use it any more.
class IpcMapping {
 public:
  // Contract of Backend::ImportDevice. `fence` outlives the mapping. One allocation may be opened
  // several times: the driver counts.
  static absl::StatusOr<IpcMapping> Open(const DeviceHandle& handle, const IpcDevice& device,
                                         Fence& fence);

  IpcMapping(IpcMapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        address_(other.address_),
        ordinal_(other.ordinal_),
        fence_(other.fence_) {}
  IpcMapping& operator=(IpcMapping&&) = delete;
  ~IpcMapping();

  std::byte* address() const { return address_; }

 private:
  IpcMapping(void* base, int ordinal, Fence& fence)
      : base_(base), ordinal_(ordinal), fence_(fence) {}

  void* base_;  // what cudaIpcOpenMemHandle gave; null: moved from
  std::byte* address_ = nullptr;
  int ordinal_;
  Fence& fence_;
};

}  // namespace gemmd::kernels::cuda
