#include "kernels/cuda/memory/ipc.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/driver_function.h"
#include "kernels/cuda/memory/heap.h"
#include "kernels/cuda/memory/returned.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr size_t kHandleBytes = sizeof(cudaIpcMemHandle_t);
constexpr const char* kGone =
    "its process has ended or has freed it, or this driver wants the two processes in one PID "
    "namespace; hand over memory that is still there, or use Upload";

struct Range {
  std::byte* base = nullptr;
  int64_t size_bytes = 0;
};

// The allocation that `address` lies in.
absl::StatusOr<Range> AllocationOf(void* address) {
  const auto get = DriverFunction<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange");
  if (!get.ok()) return get.status();
  CUdeviceptr base = 0;
  size_t size = 0;
  const absl::Status status = ToStatus((*get)(&base, &size, reinterpret_cast<CUdeviceptr>(address)),
                                       "asking for the size of another process's allocation");
  if (!status.ok()) return status;
  return Range{reinterpret_cast<std::byte*>(base), static_cast<int64_t>(size)};
}

absl::Status OpenError(cudaError_t code, Fence& fence) {
  const char* what = "mapping another process's device memory";
  const absl::Status status = fence.Check(code, what);  // clears the thread's last error, too
  if (absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) return status;
  switch (code) {
    case cudaErrorDeviceUninitialized:
      // The driver knows a handle's owner by its process id alone.
      return absl::FailedPreconditionError(absl::StrCat(
          "the device memory belongs to the process that would map it, or to one with the same "
          "process id, ",
          getpid(),
          ", in another PID namespace; use the buffer that it is already, or give one of the two "
          "another process id: shareProcessNamespace in its pod, or an init in its container"));
    case cudaErrorNotSupported:
      return absl::UnimplementedError(
          absl::StrCat(what, ": this driver or device offers no CUDA IPC; use Upload"));
    default:
      // The driver tells a dead owner's handle from a wrong one by no code of its own.
      return absl::FailedPreconditionError(
          absl::StrCat(what, ": ", cudaGetErrorName(code), ": ", kGone));
  }
}

absl::Status CheckOwner(void* base, const IpcDevice& device, Fence& fence) {
  cudaPointerAttributes attributes = {};
  if (absl::Status status = fence.Check(cudaPointerGetAttributes(&attributes, base),
                                        "asking where another process's memory lies");
      !status.ok()) {
    return status;
  }
  // The UUID beside the handle is the client's word; kernels would reach this memory over NVLink.
  if (attributes.type == cudaMemoryTypeDevice && attributes.device == device.ordinal) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the handle is not of memory on ", device.name, " (", device.gpu_uuid,
                   "), as gpu_uuid says; give the UUID of the GPU that holds it"));
}

absl::Status CheckRange(const Range& allocation, void* base, const DeviceHandle& handle) {
  // A handle of a small allocation opens to its place within the driver's block.
  const int64_t before = static_cast<std::byte*>(base) - allocation.base;
  if (before >= 0 && before <= allocation.size_bytes &&
      handle.offset_bytes + handle.size_bytes <= allocation.size_bytes - before) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("offset_bytes=", handle.offset_bytes, " and size_bytes=", handle.size_bytes,
                   " go past the end of the allocation, which has ", allocation.size_bytes - before,
                   " bytes; give what lies inside it"));
}

}  // namespace

absl::Status CheckIpcHandle(const DeviceHandle& handle, const IpcDevice& device) {
  if (handle.handle.size() != kHandleBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the CUDA IPC handle has ", handle.handle.size(),
                                                   " bytes, it must have ", kHandleBytes,
                                                   "; send cudaIpcMemHandle_t as it is"));
  }
  if (handle.size_bytes <= 0 || handle.offset_bytes < 0 ||
      handle.offset_bytes > std::numeric_limits<int64_t>::max() - handle.size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset_bytes=", handle.offset_bytes, " and size_bytes=", handle.size_bytes,
                     " are no range; give an offset of at least 0 and a size of at least 1"));
  }
  if (handle.offset_bytes % Heap::kAlignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "offset_bytes=", handle.offset_bytes, " is not a multiple of ", Heap::kAlignment,
        "; hand over from the multiple below it, and give the rest as offset_bytes of tensors"));
  }
  if (handle.gpu_uuid != device.gpu_uuid) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the memory is on ", handle.gpu_uuid.empty() ? "a GPU without a UUID" : handle.gpu_uuid,
        ", ", device.name, " is ", device.gpu_uuid,
        "; use the server's device on that GPU, or copy the data to this one"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeIpcHandle(std::byte* base, int ordinal, Fence& fence) {
  absl::Status status = fence.Check(cudaSetDevice(ordinal), "choosing the device");
  cudaIpcMemHandle_t handle;
  if (status.ok()) {
    status = fence.Check(cudaIpcGetMemHandle(&handle, base), "making a CUDA IPC handle");
  }
  if (!status.ok()) return status;
  return std::string(handle.reserved, kHandleBytes);
}

absl::StatusOr<IpcMapping> IpcMapping::Open(const DeviceHandle& handle, const IpcDevice& device,
                                            Fence& fence) {
  absl::Status status = CheckIpcHandle(handle, device);
  if (status.ok()) status = fence.status();
  if (status.ok()) status = fence.Check(cudaSetDevice(device.ordinal), "choosing the device");
  if (!status.ok()) return status;
  cudaIpcMemHandle_t raw;
  std::memcpy(raw.reserved, handle.handle.data(), kHandleBytes);
  void* base = nullptr;
  const cudaError_t code = cudaIpcOpenMemHandle(&base, raw, cudaIpcMemLazyEnablePeerAccess);
  if (code != cudaSuccess) return OpenError(code, fence);
  IpcMapping mapping(base, device.ordinal, fence);  // from here on whatever fails unmaps it
  if (status = CheckOwner(base, device, fence); !status.ok()) return status;
  const absl::StatusOr<Range> allocation = AllocationOf(base);
  if (!allocation.ok()) return allocation.status();
  if (status = CheckRange(*allocation, base, handle); !status.ok()) return status;
  mapping.address_ = static_cast<std::byte*>(base) + handle.offset_bytes;
  if (reinterpret_cast<uintptr_t>(mapping.address_) % Heap::kAlignment != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the allocation itself is not at a multiple of ", Heap::kAlignment,
                     "; hand over memory that cudaMalloc gave"));
  }
  return mapping;
}

IpcMapping::~IpcMapping() {
  if (base_ == nullptr) return;
  fence_.Check(cudaSetDevice(ordinal_), "choosing the device").IgnoreError();
  CountMemoryReturn();
  fence_.Check(cudaIpcCloseMemHandle(base_), "unmapping another process's memory").IgnoreError();
}

}  // namespace gemmd::kernels::cuda
