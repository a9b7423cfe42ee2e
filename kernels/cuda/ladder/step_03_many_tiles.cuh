// Step 3: many tiles. A CTA for each tile of D, all over the chip; until here 131 of 132 SMs idled.
//
//        n ->            each CTA reads a row of tiles of A and one of B:
//      +---+---+---+     every tile of A is read by n / 128 CTAs, mostly from L2
//    m | 0 | 1 | 2 |
//    | +---+---+---+     New beside step 2: where the CTA's tile lies.
//    v | 3 | 4 | 5 |
//      +---+---+---+

#pragma once

#include "kernels/cuda/ladder/sync_tile.cuh"

namespace gemmd::kernels::cuda::ladder {

inline constexpr int kStep3Bytes = 2 * kTileBytes + kAlignBytes;

__global__ void __launch_bounds__(kThreads) Step3ManyTiles(Matmul g) {
  const uint32_t a_tile = SharedBase();
  const uint32_t b_tile = a_tile + kTileBytes;
  const int64_t row = blockIdx.x / (g.n / kTileRows) * kTileRows;
  const int64_t col = blockIdx.x % (g.n / kTileRows) * kTileRows;
  const __half* a = static_cast<const __half*>(g.a) + row * g.lda;
  const __half* b = static_cast<const __half*>(g.b) + col * g.ldb;
  Sums sums;

  for (int k = 0; k < g.k; k += kTileK) {
    LoadTile(a_tile, a + k, g.lda);
    LoadTile(b_tile, b + k, g.ldb);
    ptx::FenceProxyAsync();
    __syncthreads();  // both tiles are whole
    Multiply(sums, a_tile, b_tile, /*accumulate=*/k > 0);
    WaitForSums<0>(sums);
    __syncthreads();  // nobody reads them any more
  }

  StoreSums(static_cast<__half*>(g.d) + row * g.ldd + col, g.ldd, sums, g.alpha);
}

}  // namespace gemmd::kernels::cuda::ladder
