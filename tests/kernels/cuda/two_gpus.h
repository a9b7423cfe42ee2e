// Two backends on two GPUs, for tests of what goes between them.

#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {

// Why there are no two GPUs that read each other's memory; empty when there are.
inline std::string WhyNotTwoGpus() {
  if (std::string why = WhyNoDevice(); !why.empty()) return why;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) return "one GPU, not two";
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1) != cudaSuccess ||
      major != 9) {
    return "device 1 has compute capability " + std::to_string(major) + ", not 9";
  }
  for (int reader : {0, 1}) {
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, reader, 1 - reader) != cudaSuccess || can == 0) {
      return "device " + std::to_string(reader) + " cannot map the other's memory";
    }
  }
  return "";
}

inline std::unique_ptr<Backend> BackendOf(int ordinal) {
  auto backend = CreateCudaBackend({.name = "cuda:" + std::to_string(ordinal),
                                    .ordinal = ordinal,
                                    .memory_bytes = int64_t{4} << 30});
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

}  // namespace gemmd::kernels::cuda
