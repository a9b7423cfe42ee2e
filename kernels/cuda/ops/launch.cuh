// Launching a kernel, on its own or overlapping the end of the one before it.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gemmd::kernels::cuda {

inline constexpr int64_t kMaxGridX = 2147483647;
inline constexpr int64_t kMaxGridYZ = 65535;

constexpr int64_t CeilDiv(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// A grid that covers x * y * z, clamped to what a launch may have: kernels stride over the rest.
inline dim3 GridOf(int64_t x, int64_t y = 1, int64_t z = 1) {
  return dim3(static_cast<unsigned>(x < kMaxGridX ? x : kMaxGridX),
              static_cast<unsigned>(y < kMaxGridYZ ? y : kMaxGridYZ),
              static_cast<unsigned>(z < kMaxGridYZ ? z : kMaxGridYZ));
}

// Queues `kernel`, in clusters of `cluster` CTAs. With `programmatic` it may start before the
// previous kernel has ended, and must call ptx::GridDependencyWait() before it touches memory that
// the other writes, or writes what the other touches; and at some time in any case, by one thread
// at least, since the kernel behind it waits for no more than its end.
template <class... Params, class... Args>
cudaError_t LaunchClusters(void (*kernel)(Params...), dim3 grid, int threads, int cluster,
                           bool programmatic, cudaStream_t stream, Args... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (programmatic) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeClusterDimension;
    together.val.clusterDim.x = static_cast<unsigned>(cluster);
    together.val.clusterDim.y = together.val.clusterDim.z = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

template <class... Params, class... Args>
cudaError_t LaunchKernel(void (*kernel)(Params...), dim3 grid, int threads, bool programmatic,
                         cudaStream_t stream, Args... args) {
  return LaunchClusters(kernel, grid, threads, 1, programmatic, stream, args...);
}

}  // namespace gemmd::kernels::cuda
