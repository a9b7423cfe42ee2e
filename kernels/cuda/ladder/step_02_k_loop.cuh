// Step 2: a loop over k. The sums stay in registers from one tile of k to the next, so D is written
// once, however long k is.
//
//   k:   | load | multiply | load | multiply | load | multiply | ... | store
//
// New beside step 1: the loop, `accumulate`, and a second barrier. Without it a fast warp would
// overwrite tiles that the tensor cores still read for a slow one.

#pragma once

#include "kernels/cuda/ladder/sync_tile.cuh"

namespace gemmd::kernels::cuda::ladder {

inline constexpr int kStep2Bytes = 2 * kTileBytes + kAlignBytes;

__global__ void __launch_bounds__(kThreads) Step2KLoop(Matmul g) {
  const uint32_t a_tile = SharedBase();
  const uint32_t b_tile = a_tile + kTileBytes;
  Sums sums;

  for (int k = 0; k < g.k; k += kTileK) {
    LoadTile(a_tile, static_cast<const __half*>(g.a) + k, g.lda);
    LoadTile(b_tile, static_cast<const __half*>(g.b) + k, g.ldb);
    ptx::FenceProxyAsync();
    __syncthreads();  // both tiles are whole
    Multiply(sums, a_tile, b_tile, /*accumulate=*/k > 0);
    WaitForSums<0>(sums);
    __syncthreads();  // nobody reads them any more
  }

  StoreSums(static_cast<__half*>(g.d), g.ldd, sums, g.alpha);
}

}  // namespace gemmd::kernels::cuda::ladder
