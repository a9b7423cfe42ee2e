// Step 7: producer and consumer warps. One warp does nothing but ask for loads, a warpgroup nothing
// but multiply and store. They meet at two barriers a stage, and no barrier stops all threads.
//
//   producer:   wait for empty[s] | ask for A and B of the next k | s = next stage ...
//                                     |  full[s]                       ^  empty[s]
//   consumers:  wait for full[s] <----+ multiply | a lane of each warp arrives | next ...
//
// New beside step 6: `empty`, on which the consumers' four warps arrive; the roles. The loads' walk
// is a plain loop again, because it has a warp to itself.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"
#include "kernels/cuda/ladder/tile_order.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step7Shared = Ring<2, 1>;
inline constexpr int kStep7Threads = kThreads + 32;

__global__ void __launch_bounds__(kStep7Threads)
    Step7Producer(const __grid_constant__ Maps maps, Matmul g) {
  constexpr int kStages = 2;
  const Step7Shared shared;
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

  RingPlace<kStages> ring;
  Sums sums;
  for (int tile = blockIdx.x; tile < order.count(); tile += gridDim.x) {
    for (int k = 0; k < k_tiles; ++k) {
      ptx::MbarrierWait(shared.Full(ring.stage), ring.parity);
      Multiply(sums, shared.A(ring.stage), shared.B(ring.stage), /*accumulate=*/k > 0);
      WaitForSums<0>(sums);
      if (threadIdx.x % 32 == 0) ptx::MbarrierArrive(shared.Empty(ring.stage));
      ring.Advance();
    }
    const int2 at = order.Place(tile);
    StoreTile(&maps.d, shared.D(), sums, g.alpha, at.y * kTileRows, at.x * kTileRows,
              /*barrier=*/1);
  }
  if (threadIdx.x == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
