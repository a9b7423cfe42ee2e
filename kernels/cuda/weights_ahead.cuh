// Asking for WeightsAhead, by all threads of a grid.

#ifndef GEMMD_KERNELS_CUDA_WEIGHTS_AHEAD_CUH_
#define GEMMD_KERNELS_CUDA_WEIGHTS_AHEAD_CUH_

#include <cstdint>

#include "kernels/cuda/weights_ahead.h"

namespace gemmd::kernels::cuda {

// PTX ISA 9.7.9.15, prefetch. Here and not with its like in ptx/, which the tuning tables are keyed
// by: no kernel of theirs has it.
__device__ __forceinline__ void PrefetchL2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// To be called before the grid waits for the kernels in front: behind that wait the grid would not
// end before the lines are there (7168x16384 and three smaller, 1 to 8 MiB each: 0.4 us and 0.26 us
// a MiB longer).
__device__ __forceinline__ void AskFor(const WeightsAhead& ahead) {
  const int cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int threads = blockDim.x * gridDim.x * gridDim.y * gridDim.z;
  const int lines = ahead.lines();
#pragma unroll 1
  for (int i = cta * blockDim.x + threadIdx.x; i < lines; i += threads) PrefetchL2(ahead.Line(i));
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_WEIGHTS_AHEAD_CUH_
