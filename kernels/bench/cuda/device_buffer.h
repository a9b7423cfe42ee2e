// DeviceBuffer: device memory that only grows, so that a run over many shapes allocates seldom.
// Frees it at the end. Not thread-safe.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/device/cuda_status.h"

namespace gemmd::kernels::bench {

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }

  // At least `size_bytes`, 256-byte aligned; what was in it may be lost. RESOURCE_EXHAUSTED when
  // the device has no such memory.
  absl::Status Reserve(int64_t size_bytes) {
    if (size_bytes <= size_bytes_) return absl::OkStatus();
    cudaFree(data_);
    data_ = nullptr;
    size_bytes_ = 0;
    const cudaError_t code = cudaMalloc(&data_, size_bytes);
    if (code == cudaErrorMemoryAllocation) cudaGetLastError();  // not sticky: forget it
    if (code == cudaSuccess) size_bytes_ = size_bytes;
    return cuda::ToStatus(code, absl::StrCat("cudaMalloc of ", size_bytes, " B"));
  }

  uint8_t* data() const { return static_cast<uint8_t*>(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  void* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace gemmd::kernels::bench
