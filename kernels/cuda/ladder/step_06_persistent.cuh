// Step 6: a persistent grid. One CTA an SM for the whole matmul, which takes tile after tile, in an
// order that is good for L2. The ring goes on from one tile to the next: the next tile's first
// stages load while this one's last are multiplied and its D is stored.
//
//   step 5:  | start | load | k k k k | store | start | load | k k k k | store |
//   step 6:  | start | load | k k k k | store | k k k k | store | k k k k | ...
//
// New beside step 5: the loop over tiles, and a walk of the loads that is two tiles of k ahead of
// the products', across tiles.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"
#include "kernels/cuda/ladder/tile_order.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step6Shared = Ring<2, 1>;

__global__ void __launch_bounds__(kThreads)
    Step6Persistent(const __grid_constant__ Maps maps, Matmul g) {
  constexpr int kStages = 2;
  const Step6Shared shared;
  const int k_tiles = CeilDiv(g.k, kTileK);
  const TileOrder order{CeilDiv(g.m, kTileRows), CeilDiv(g.n, kTileRows)};
  const int warp = WarpIndex();
  Sums sums;

  // Where the loads are: as many steps ahead as there are stages, so always at the stage that was
  // read last. All threads keep count, one asks.
  int load_tile = blockIdx.x;
  int load_k = 0;
  int2 load_at = order.Place(load_tile);
  const auto load = [&](int stage) {
    if (load_tile >= order.count()) return;
    if (Asks(warp)) {
      const uint32_t full = shared.Full(stage);
      ptx::MbarrierArriveExpectTx(full, 2 * kTileBytes);
      LoadBox(maps.a, full, shared.A(stage), load_at.y * kTileRows, load_k);
      LoadBox(maps.b, full, shared.B(stage), load_at.x * kTileRows, load_k);
    }
    if (++load_k < k_tiles) return;
    load_k = 0;
    load_tile += gridDim.x;
    if (load_tile < order.count()) load_at = order.Place(load_tile);
  };

  if (Asks(warp)) shared.Init(/*readers=*/1);
  __syncwarp();
  for (int i = 0; i < kStages; ++i) load(i);
  __syncthreads();  // the barriers are there

  RingPlace<kStages> ring;
  for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
    for (int k = 0; k < k_tiles; ++k) {
      ptx::MbarrierWait(shared.Full(ring.stage), ring.parity);
      Multiply(sums, shared.A(ring.stage), shared.B(ring.stage), /*accumulate=*/k > 0);
      WaitForSums<0>(sums);
      __syncthreads();  // nobody reads the stage any more
      load(ring.stage);
      ring.Advance();
    }
    const int2 at = order.Place(tile);
    StoreTile(&maps.d, shared.D(), sums, g.alpha, at.y * kTileRows, at.x * kTileRows,
              /*barrier=*/1);
  }
  if (threadIdx.x == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
