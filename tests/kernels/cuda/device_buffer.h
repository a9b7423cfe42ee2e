// What tests need of a device: memory, and whether there is one.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {

// Why GPU tests cannot run here; empty when they can.
inline std::string WhyNoDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(error);
  if (count == 0) return "no CUDA device";
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess) {
    return "device 0 does not answer";
  }
  if (major != 9) return "device 0 has compute capability " + std::to_string(major) + ", not 9";
  return "";
}

// First line of every GPU test.
#define GEMMD_REQUIRE_DEVICE()                                                             \
  if (const std::string why_not = ::gemmd::kernels::cuda::WhyNoDevice(); !why_not.empty()) \
  GTEST_SKIP() << why_not

#define GEMMD_ASSERT_CUDA(call)                                                    \
  do {                                                                             \
    const cudaError_t error_ = (call);                                             \
    ASSERT_EQ(error_, cudaSuccess) << #call << ": " << cudaGetErrorString(error_); \
  } while (false)

// Bytes on device 0, freed on destruction. An allocation that fails is a null address and fails the
// test.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t size_bytes) : size_bytes_(size_bytes) {
    Check(cudaMalloc(&data_, size_bytes > 0 ? size_bytes : 1), "cudaMalloc");
  }
  explicit DeviceBuffer(const std::vector<std::byte>& bytes)
      : DeviceBuffer(static_cast<int64_t>(bytes.size())) {
    Check(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copy in");
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) Check(cudaFree(data_), "cudaFree");
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t size_bytes() const { return size_bytes_; }

  // After everything queued on the device.
  std::vector<std::byte> Download() const {
    std::vector<std::byte> bytes(size_bytes_);
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Check(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost), "copy out");
    return bytes;
  }

 private:
  static void Check(cudaError_t error, const char* what) {
    if (error != cudaSuccess) ADD_FAILURE() << what << ": " << cudaGetErrorString(error);
  }

  void* data_ = nullptr;
  int64_t size_bytes_ = 0;
};

}  // namespace gemmd::kernels::cuda
