// Step 4: the copy engine (TMA) moves tiles. One thread asks for a box of a matrix; the engine
// makes the addresses, swizzles, and tells an mbarrier how many bytes have landed. No registers, no
// instructions for each 16 bytes, and beyond the matrix it reads zeros and writes nothing: any m, n
// and k.
//
//   thread 0: expect 32 KiB on `full`, ask for A, ask for B
//   engine:   ......... bytes arrive .........  full
//   all:      wait for `full`                       | multiply | barrier, then again
//
// New beside step 3: `full` and its parity, which changes each time the barrier completes; the way
// of D, through shared memory and out by the engine. A wait is all that is left of the loads.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step4Shared = Ring<1, 1>;

__global__ void __launch_bounds__(kThreads) Step4Tma(const __grid_constant__ Maps maps, Matmul g) {
  const Step4Shared shared;
  const int k_tiles = CeilDiv(g.k, kTileK);
  const int row = blockIdx.x / CeilDiv(g.n, kTileRows) * kTileRows;
  const int col = blockIdx.x % CeilDiv(g.n, kTileRows) * kTileRows;
  const int warp = WarpIndex();
  Sums sums;

  if (threadIdx.x == 0) {
    ptx::MbarrierInit(shared.Full(0), 1);
    ptx::FenceMbarrierInit();
  }
  __syncthreads();  // the barrier is there

#pragma unroll 1
  for (int k = 0; k < k_tiles; ++k) {
    if (Asks(warp)) {
      ptx::MbarrierArriveExpectTx(shared.Full(0), 2 * kTileBytes);
      LoadBox(maps.a, shared.Full(0), shared.A(0), row, k);
      LoadBox(maps.b, shared.Full(0), shared.B(0), col, k);
    }
    ptx::MbarrierWait(shared.Full(0), k % 2);  // both tiles are whole
    Multiply(sums, shared.A(0), shared.B(0), /*accumulate=*/k > 0);
    WaitForSums<0>(sums);
    __syncthreads();  // nobody reads them any more
  }

  StoreTile(&maps.d, shared.D(), sums, g.alpha, row, col, /*barrier=*/1);
  if (threadIdx.x == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
