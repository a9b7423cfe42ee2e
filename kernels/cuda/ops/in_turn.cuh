// The two ends of a kernel that may be independent of those in front (independent.h).

#pragma once

#include "kernels/cuda/ptx/griddepcontrol.cuh"

namespace gemmd::kernels::cuda {

// Before the kernel touches memory, by all threads.
__device__ __forceinline__ void BeginInTurn(bool independent) {
  if (!independent) ptx::GridDependencyWait();
  ptx::GridDependencyLaunch();
}

// Behind all else, at least by the first thread of the first CTA: a grid has ended when all its
// threads have, and that is what the kernel behind it waits for.
__device__ __forceinline__ void EndInTurn(bool independent) {
  if (independent && (blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x) == 0) {
    ptx::GridDependencyWait();
  }
}

}  // namespace gemmd::kernels::cuda
