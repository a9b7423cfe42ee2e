// Step 9: a cluster of two with multicast. Two CTAs work on tiles side by side, which need the same
// rows of A. Each asks for half of them, and the engine writes what it brings into both: a quarter
// less to read from L2.
//
//            CTA 0             CTA 1
//   A        rows 0..63  --->  rows 0..63         asked for by CTA 0, written into both
//            rows 64..127 <--- rows 64..127       asked for by CTA 1, written into both
//   B        its columns       its columns        each its own
//
// New beside step 8: a producer fills its neighbour's stage too, so `empty` counts the warps of
// both CTAs; barriers must be there before the neighbour uses them; and no CTA may end before its
// neighbour's last arrival has come.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"
#include "kernels/cuda/ladder/tile_order.cuh"
#include "kernels/cuda/ptx/cluster.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step9Shared = Ring<4, 1>;
inline constexpr int kStep9Threads = kThreads + 32;

__global__ void __launch_bounds__(kStep9Threads)
    Step9Cluster(const __grid_constant__ Maps maps, Matmul g) {
  constexpr int kStages = 4;
  const Step9Shared shared;
  const int k_tiles = CeilDiv(g.k, kTileK);
  const TileOrder order{CeilDiv(g.m, kTileRows), CeilDiv(g.n, 2 * kTileRows)};  // pairs of tiles
  const int rank = ptx::ClusterRank();
  const int first = blockIdx.x / 2;
  const int step = gridDim.x / 2;

  if (threadIdx.x == 0) shared.Init(/*readers=*/2 * 4);
  ptx::ClusterArriveRelaxed();
  ptx::ClusterWait();  // the barriers are there, in both CTAs

  RingPlace<kStages> ring;
  if (WarpIndex() == kThreads / 32) {  // the producer
    if (!ptx::ElectOne()) return;
    for (int tile = first; tile < order.count(); tile += step) {
      const int2 at = order.Place(tile);
      for (int k = 0; k < k_tiles; ++k) {
        const uint32_t full = shared.Full(ring.stage);
        ptx::MbarrierWait(shared.Empty(ring.stage), ring.parity ^ 1);
        ptx::MbarrierArriveExpectTx(full, 2 * kTileBytes);
        LoadBoxForBoth(maps.a, full, shared.A(ring.stage) + rank * kHalfBytes,
                       at.y * kTileRows + rank * 64, k);
        LoadBox(maps.b, full, shared.B(ring.stage), (at.x * 2 + rank) * kTileRows, k);
        ring.Advance();
      }
    }
    for (int i = 0; i < kStages; ++i, ring.Advance()) {  // the neighbour's last arrivals
      ptx::MbarrierWait(shared.Empty(ring.stage), ring.parity ^ 1);
    }
    return;
  }

  const auto give_back = [&](int stage) {  // to both producers
    const int lane = threadIdx.x % 32;
    if (lane < 2) ptx::MbarrierArriveRemote(ptx::MapToRank(shared.Empty(stage), lane));
  };
  Sums sums;
  for (int tile = first; tile < order.count(); tile += step) {
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
    StoreTile(&maps.d, shared.D(), sums, g.alpha, at.y * kTileRows, (at.x * 2 + rank) * kTileRows,
              /*barrier=*/1);
  }
  if (threadIdx.x == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
