// Step 8: four stages. Loads are asked for so far ahead that their latency, about a microsecond of
// DRAM and half of one of L2, is hidden; and there is room to leave a product in flight: the next
// one is queued before the last one is waited for, so that the tensor cores never run dry within a
// tile.
//
//   step 7:  | k 0 |  wait  | k 1 |  wait  | k 2 | ...
//   step 8:  | k 0 | k 1 | k 2 | ...      stage of k 0 is given back while k 1 multiplies
//
// New beside step 7: 4 instead of 2, WaitForSums<1>, and a stage that is given back one later.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"
#include "kernels/cuda/ladder/tile_order.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step8Shared = Ring<4, 1>;
inline constexpr int kStep8Threads = kThreads + 32;

__global__ void __launch_bounds__(kStep8Threads)
    Step8FourStages(const __grid_constant__ Maps maps, Matmul g) {
  constexpr int kStages = 4;
  const Step8Shared shared;
  const int k_tiles = CeilDiv(g.k, kTileK);
  const TileOrder order{CeilDiv(g.m, kTileRows), CeilDiv(g.n, kTileRows)};

  if (threadIdx.x == 0) shared.Init(/*readers=*/4);
  __syncthreads();  // the barriers are there

  if (WarpIndex() == kThreads / 32) {  // the producer
    if (!ptx::ElectOne()) return;
    RingPlace<kStages> ring;
    for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
      const int2 at = order.Place(tile);
      for (int k = 0; k < k_tiles; ++k) {
        const uint32_t full = shared.Full(ring.stage);
        ptx::MbarrierWait(shared.Empty(ring.stage), ring.parity ^ 1);
        ptx::MbarrierArriveExpectTx(full, 2 * kTileBytes);
        LoadBox(maps.a, full, shared.A(ring.stage), at.y * kTileRows, k);
        LoadBox(maps.b, full, shared.B(ring.stage), at.x * kTileRows, k);
        ring.Advance();
      }
    }
    return;
  }

  const auto give_back = [&](int stage) {
    if (threadIdx.x % 32 == 0) ptx::MbarrierArrive(shared.Empty(stage));
  };
  RingPlace<kStages> ring;
  Sums sums;
  for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
    int last = 0;  // the stage of the product in flight
    for (int k = 0; k < k_tiles; ++k) {
      ptx::MbarrierWait(shared.Full(ring.stage), ring.parity);
      Multiply(sums, shared.A(ring.stage), shared.B(ring.stage), /*accumulate=*/k > 0);
      WaitForSums<1>(sums);
      if (k > 0) give_back(last);
      last = ring.stage;
      ring.Advance();
    }
    WaitForSums<0>(sums);
    give_back(last);
    const int2 at = order.Place(tile);
    StoreTile(&maps.d, shared.D(), sums, g.alpha, at.y * kTileRows, at.x * kTileRows,
              /*barrier=*/1);
  }
  if (threadIdx.x == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
