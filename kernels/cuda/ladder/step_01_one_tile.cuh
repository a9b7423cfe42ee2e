// Step 1: one tile, synchronous. Load, multiply, store, each after the other has ended.
//
//   A tile [128 x 64] --threads--> shared memory --+
//                                                  +-- 8 WGMMA --> registers --threads--> D [128 x
//                                                  128]
//   B tile [128 x 64] --threads--> shared memory --+
//
// The tensor cores read shared memory by the asynchronous proxy, as the copy engine does. What
// threads wrote there must be fenced for it, by those who wrote, before the barrier.

#pragma once

#include "kernels/cuda/ladder/sync_tile.cuh"

namespace gemmd::kernels::cuda::ladder {

inline constexpr int kStep1Bytes = 2 * kTileBytes + kAlignBytes;

__global__ void __launch_bounds__(kThreads) Step1OneTile(Matmul g) {
  const uint32_t a_tile = SharedBase();
  const uint32_t b_tile = a_tile + kTileBytes;
  Sums sums;

  LoadTile(a_tile, static_cast<const __half*>(g.a), g.lda);
  LoadTile(b_tile, static_cast<const __half*>(g.b), g.ldb);
  ptx::FenceProxyAsync();
  __syncthreads();  // both tiles are whole

  Multiply(sums, a_tile, b_tile, /*accumulate=*/false);
  WaitForSums<0>(sums);

  StoreSums(static_cast<__half*>(g.d), g.ldd, sums, g.alpha);
}

}  // namespace gemmd::kernels::cuda::ladder
