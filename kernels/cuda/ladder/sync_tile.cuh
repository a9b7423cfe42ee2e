// Steps 1 to 3: tiles in and out by ordinary loads and stores of the warpgroup's own threads.

#pragma once

#include "kernels/cuda/ladder/tile.cuh"

namespace gemmd::kernels::cuda::ladder {

// 128 rows of 64 values from `source` into the tile at `target`, swizzled by hand.
__device__ __forceinline__ void LoadTile(uint32_t target, const __half* source, int64_t ld) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int index = i * kThreads + threadIdx.x;
    const int row = index / 8;
    const int unit = index % 8;
    const float4 values = *reinterpret_cast<const float4*>(source + row * ld + unit * 8);
    ptx::StoreShared4(target + Swizzled(row, unit), values);
  }
}

// Each thread its own sums, two neighbours at a time.
__device__ __forceinline__ void StoreSums(__half* d, int64_t ld, const Sums& sums, float alpha) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __half* upper = d + (half * 64 + warp * 16 + lane / 4) * ld + lane % 4 * 2;
    __half* lower = upper + 8 * ld;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float* s = sums[half] + 4 * j;
      *reinterpret_cast<__half2*>(upper + j * 8) = __floats2half2_rn(s[0] * alpha, s[1] * alpha);
      *reinterpret_cast<__half2*>(lower + j * 8) = __floats2half2_rn(s[2] * alpha, s[3] * alpha);
    }
  }
}

}  // namespace gemmd::kernels::cuda::ladder
