// Step 10: two consumer warpgroups. Each has 128 rows of A to itself and both read one tile of B: a
// tile of 256 x 128, for which a third less is read per product. While one warpgroup stores, or
// waits between two products, the other one keeps the tensor cores busy.
//
//                  B [128 x 64]
//                 +------------+
//   A, tile 0     | consumer 0 |      registers of an SM: 64 Ki.  3 warpgroups start with 168 a
//   A, tile 1     | consumer 1 |      thread; the producer gives up all but 40, so that each
//                 +------------+      consumer may have 232 for its 128 sums and what goes with
//                 them
//
// New beside step 9: two tiles of A a stage, a consumer's number, setmaxnreg. It works by
// warpgroups, so the producer is one, of which a single thread works.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"
#include "kernels/cuda/ladder/tile_order.cuh"
#include "kernels/cuda/ptx/cluster.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step10Shared = Ring<4, 2>;
inline constexpr int kStep10Threads = 3 * kThreads;

__global__ void __launch_bounds__(kStep10Threads)
    Step10TwoConsumers(const __grid_constant__ Maps maps, Matmul g) {
  constexpr int kStages = 4;
  constexpr int kRows = 2 * kTileRows;
  const Step10Shared shared;
  const int k_tiles = CeilDiv(g.k, kTileK);
  const TileOrder order{CeilDiv(g.m, kRows), CeilDiv(g.n, 2 * kTileRows)};  // pairs of tiles
  const int rank = ptx::ClusterRank();
  const int first = blockIdx.x / 2;
  const int step = gridDim.x / 2;

  if (threadIdx.x == 0) shared.Init(/*readers=*/2 * 8);
  ptx::ClusterArriveRelaxed();
  ptx::ClusterWait();  // the barriers are there, in both CTAs

  RingPlace<kStages> ring;
  const int consumer = WarpIndex() / 4;
  if (consumer == 2) {  // the producer
    ptx::SetMaxRegistersDown<40>();
    if (WarpIndex() % 4 != 0 || !ptx::ElectOne()) return;
    for (int tile = first; tile < order.count(); tile += step) {
      const int2 at = order.Place(tile);
      for (int k = 0; k < k_tiles; ++k) {
        const uint32_t full = shared.Full(ring.stage);
        ptx::MbarrierWait(shared.Empty(ring.stage), ring.parity ^ 1);
        ptx::MbarrierArriveExpectTx(full, 3 * kTileBytes);
        LoadBoxForBoth(maps.a, full, shared.A(ring.stage, rank), at.y * kRows + rank * kTileRows,
                       k);
        LoadBox(maps.b, full, shared.B(ring.stage), (at.x * 2 + rank) * kTileRows, k);
        ring.Advance();
      }
    }
    for (int i = 0; i < kStages; ++i, ring.Advance()) {  // the neighbour's last arrivals
      ptx::MbarrierWait(shared.Empty(ring.stage), ring.parity ^ 1);
    }
    return;
  }

  ptx::SetMaxRegistersUp<232>();
  const auto give_back = [&](int stage) {  // to both producers
    const int lane = threadIdx.x % 32;
    if (lane < 2) ptx::MbarrierArriveRemote(ptx::MapToRank(shared.Empty(stage), lane));
  };
  Sums sums;
  for (int tile = first; tile < order.count(); tile += step) {
    int last = 0;  // the stage of the product in flight
    for (int k = 0; k < k_tiles; ++k) {
      ptx::MbarrierWait(shared.Full(ring.stage), ring.parity);
      Multiply(sums, shared.A(ring.stage, consumer), shared.B(ring.stage), /*accumulate=*/k > 0);
      WaitForSums<1>(sums);
      if (k > 0) give_back(last);
      last = ring.stage;
      ring.Advance();
    }
    WaitForSums<0>(sums);
    give_back(last);
    const int2 at = order.Place(tile);
    StoreTile(&maps.d, shared.D(consumer), sums, g.alpha, at.y * kRows + consumer * kTileRows,
              (at.x * 2 + rank) * kTileRows, /*barrier=*/1 + consumer);
  }
  if (threadIdx.x % kThreads == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
