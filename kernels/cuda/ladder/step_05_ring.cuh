// Step 5: a ring of two stages. While the tensor cores read one stage, the engine fills the other.
//
//   stage 0:  | load 0 | multiply 0 | load 2      | multiply 2 | ...
//   stage 1:  | load 1              | multiply 1  | load 3     | ...
//
// New beside step 4: two stages with a `full` each, and loads that are asked for two tiles of k
// ahead, as soon as a stage has been read.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step5Shared = Ring<2, 1>;

__global__ void __launch_bounds__(kThreads) Step5Ring(const __grid_constant__ Maps maps, Matmul g) {
  constexpr int kStages = 2;
  const Step5Shared shared;
  const int k_tiles = CeilDiv(g.k, kTileK);
  const int row = blockIdx.x / CeilDiv(g.n, kTileRows) * kTileRows;
  const int col = blockIdx.x % CeilDiv(g.n, kTileRows) * kTileRows;
  const int warp = WarpIndex();
  Sums sums;

  const auto load = [&](int k) {
    const int stage = k % kStages;
    ptx::MbarrierArriveExpectTx(shared.Full(stage), 2 * kTileBytes);
    LoadBox(maps.a, shared.Full(stage), shared.A(stage), row, k);
    LoadBox(maps.b, shared.Full(stage), shared.B(stage), col, k);
  };

  if (Asks(warp)) {
    shared.Init(/*readers=*/1);
    for (int k = 0; k < min(kStages, k_tiles); ++k) load(k);
  }
  __syncthreads();  // the barriers are there

  for (int k = 0; k < k_tiles; ++k) {
    const int stage = k % kStages;
    ptx::MbarrierWait(shared.Full(stage), k / kStages % 2);
    Multiply(sums, shared.A(stage), shared.B(stage), /*accumulate=*/k > 0);
    WaitForSums<0>(sums);
    __syncthreads();  // nobody reads the stage any more
    if (k + kStages < k_tiles && Asks(warp)) load(k + kStages);
  }

  StoreTile(&maps.d, shared.D(), sums, g.alpha, row, col, /*barrier=*/1);
  if (threadIdx.x == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
