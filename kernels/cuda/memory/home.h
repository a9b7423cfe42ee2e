// Whose memory an address is.

#pragma once

#include <cuda_runtime_api.h>

namespace gemmd::kernels::cuda {

inline constexpr int kOnHost = -1;

// The ordinal of the GPU whose memory it is, or kOnHost.
inline int HomeOf(const void* address) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, address) == cudaSuccess) {
    return attributes.type == cudaMemoryTypeDevice ? attributes.device : kOnHost;
  }
  cudaGetLastError();
  return kOnHost;
}

}  // namespace gemmd::kernels::cuda
