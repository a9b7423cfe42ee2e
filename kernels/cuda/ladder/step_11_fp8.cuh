// Step 11: FP8 with promotion. The bytes are step 10's, but each holds a value: a stage is 128 of
// k, which share a scale for each row of A and one for 128 rows of B. FP8 tensor cores keep about
// 14 bits of a sum, so a chain of products ends with its 128 of k; the scales multiply what it
// gave, in FP32, on the way into the sums.
//
//   chain of 128 of k: WGMMA x 4 --> partial --*-- a_scale(row, k) * b_scale(col / 128, k) --> +=
//   sums
//
// New beside step 10: `partial`, fresh for each 64 rows and 128 of k, and the promotion. The tensor
// cores rest while a warpgroup promotes; the other one's products fill that gap, which is why there
// are two. Scales come by ordinary loads, asked for before the products that they wait behind.

#pragma once

#include "kernels/cuda/ladder/ring.cuh"
#include "kernels/cuda/ladder/tile_order.cuh"
#include "kernels/cuda/ptx/cluster.cuh"

namespace gemmd::kernels::cuda::ladder {

using Step11Shared = Ring<4, 2>;
inline constexpr int kStep11Threads = 3 * kThreads;
inline constexpr int kFp8TileK = 128;

// partial = 64 rows of A . B tile^T, queued.
__device__ __forceinline__ void MultiplyFp8(float (&partial)[64], uint32_t a, uint32_t b) {
  ptx::Pin(partial);
  ptx::WgmmaFence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // 32 of k: 32 bytes of each row
    ptx::Wgmma<128>::Multiply(partial, ptx::KMajorDescriptor((a + i * 32) / 16),
                              ptx::KMajorDescriptor((b + i * 32) / 16), i > 0);
  }
  ptx::WgmmaCommit();
}

// A thread's scales for 128 of k: of A for its upper and lower row in either half, and B's. They
// are multiplied when they are needed: before, that would be a wait for the loads.
struct Step11Scale {
  float upper0, lower0, upper1, lower1, b;
};
struct Step11Scales {
  const float* upper[2];
  const float* lower[2];
  const float* b;
  int64_t a_step;
  int64_t b_step;

  __device__ Step11Scales(const Matmul& g, int row, int col)
      : a_step(g.a_scales.k_stride), b_step(g.b_scales.k_stride) {
    const int mine = row + threadIdx.x % kThreads / 32 * 16 + threadIdx.x % 32 / 4;
    for (int half = 0; half < 2; ++half) {  // rows beyond A have no scales; nobody reads their sums
      upper[half] = g.a_scales.data + min(mine + half * 64, g.m - 1) * g.a_scales.row_stride;
      lower[half] = g.a_scales.data + min(mine + half * 64 + 8, g.m - 1) * g.a_scales.row_stride;
    }
    b = g.b_scales.data + min(col, g.n - 1) / 128 * g.b_scales.row_stride;
  }
  // Those of the k'th tile.
  __device__ __forceinline__ Step11Scale At(int k) const {
    return {__ldg(upper[0] + k * a_step), __ldg(lower[0] + k * a_step),
            __ldg(upper[1] + k * a_step), __ldg(lower[1] + k * a_step), __ldg(b + k * b_step)};
  }
};

__device__ __forceinline__ void Promote(float (&sums)[64], const float (&partial)[64], float upper,
                                        float lower) {
#pragma unroll
  for (int i = 0; i < 64; i += 4) {
    sums[i + 0] += partial[i + 0] * upper;
    sums[i + 1] += partial[i + 1] * upper;
    sums[i + 2] += partial[i + 2] * lower;
    sums[i + 3] += partial[i + 3] * lower;
  }
}

__global__ void __launch_bounds__(kStep11Threads)
    Step11Fp8(const __grid_constant__ Maps maps, Matmul g) {
  constexpr int kStages = 4;
  constexpr int kRows = 2 * kTileRows;
  const Step11Shared shared;
  const int k_tiles = CeilDiv(g.k, kFp8TileK);
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
  for (int tile = first; tile < order.count(); tile += step) {
    const int2 at = order.Place(tile);
    const int row = at.y * kRows + consumer * kTileRows;
    const int col = (at.x * 2 + rank) * kTileRows;
    const Step11Scales scales(g, row, col);
    Sums sums = {};
    Step11Scale next = scales.At(0);
    for (int k = 0; k < k_tiles; ++k) {
      const Step11Scale scale = next;
      float partial[64];
      ptx::MbarrierWait(shared.Full(ring.stage), ring.parity);
      MultiplyFp8(partial, shared.A(ring.stage, consumer), shared.B(ring.stage));
      if (k + 1 < k_tiles) next = scales.At(k + 1);
      ptx::WgmmaWait<0>();
      ptx::Pin(partial);
      Promote(sums[0], partial, scale.upper0 * scale.b, scale.lower0 * scale.b);
      MultiplyFp8(partial, shared.A(ring.stage, consumer) + kHalfBytes, shared.B(ring.stage));
      ptx::WgmmaWait<0>();
      ptx::Pin(partial);
      give_back(ring.stage);
      Promote(sums[1], partial, scale.upper1 * scale.b, scale.lower1 * scale.b);
      ring.Advance();
    }
    StoreTile<__nv_bfloat16>(&maps.d, shared.D(consumer), sums, g.alpha, row, col,
                             /*barrier=*/1 + consumer);
  }
  if (threadIdx.x % kThreads == 0) ptx::TensorStoreWait();
}

}  // namespace gemmd::kernels::cuda::ladder
