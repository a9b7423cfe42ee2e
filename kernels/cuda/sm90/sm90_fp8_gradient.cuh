// The skeleton of sm90_fp8_gemm.cuh with scales for both sides and a walk over (group, tile): how
// many k blocks a tile has, and from where, is read on the device. Tensor maps are of whole
// operands: a group's columns are coordinates in them, and nothing is written in flight.
//
//   HBM / L2 --TMA--> ring of [rows | cols | scales of either] --WGMMA--> accumulators
//                                                                            | factors
//        D <--copy engine, stored or added-- staging, a sub-tile <--C, rounding-- result

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GRADIENT_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GRADIENT_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/ptx/reduce.cuh"
#include "kernels/cuda/sm90/gradient.h"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gradient_math.cuh"

namespace gemmd::kernels::cuda {

// A group's k blocks of the operands.
struct KRun {
  int first = 0;  // block
  int steps = 0;
  int tail = 0;   // columns of the last block, 0: all
  int batch = 0;  // of A and B
};

__device__ __forceinline__ KRun KRunOf(const GradientLaunch& launch, int group) {
  KRun run;
  int columns = launch.k;
  if (launch.starts != nullptr) {
    run.first = launch.starts[group] / kBlockK;
    columns = launch.sizes[group];
  } else {
    run.batch = group;
  }
  run.steps = (columns + kBlockK - 1) / kBlockK;
  run.tail = columns % kBlockK;
  return run;
}

// One stage: this CTA's rows and columns, or its slices of what its cluster shares, and all its
// scales.
template <GemmConfig C>
__device__ __forceinline__ void LoadGradientStage(const GradientLaunch& launch,
                                                  const SmemLayout<C>& smem,
                                                  const ClusterPlace<C>& place, const Tile& tile,
                                                  int batch, int stage, int block) {
  const uint32_t full = smem.Full(stage);
  const int x = block * kRowBytes;
  ptx::MbarrierArriveExpectTx(full, C.stage_bytes() + (C.rows + C.cols) * 4);
  constexpr int kRows = C.rows / C.share_rows;
  const int row = place.col * kRows;
  if constexpr (C.share_rows == 1) {
    ptx::TensorLoad(&launch.row_map, full, smem.Rows(stage), x, tile.row0, 0, batch,
                    ptx::kEvictNormal);
  } else {
    ptx::TensorLoadMulticast(&launch.row_map, full, smem.Rows(stage) + row * kRowBytes, x,
                             tile.row0 + row, 0, batch, place.RowPeers(), ptx::kEvictNormal);
  }
  constexpr int kCols = C.cols / C.share_cols;
  const int col = place.row * kCols;
  if constexpr (C.share_cols == 1) {
    ptx::TensorLoad(&launch.col_map, full, smem.Cols(stage), x, tile.col0, 0, batch,
                    ptx::kEvictNormal);
  } else {
    ptx::TensorLoadMulticast(&launch.col_map, full, smem.Cols(stage) + col * kRowBytes, x,
                             tile.col0 + col, 0, batch, place.ColPeers(), ptx::kEvictNormal);
  }
  ptx::TensorLoad(&launch.row_scale_map, full, smem.AScales(stage), tile.row0, 0, block, batch,
                  ptx::kEvictLast);
  ptx::TensorLoad(&launch.col_scale_map, full, smem.BScales(stage), tile.col0, 0, block, batch,
                  ptx::kEvictLast);
}

template <GemmConfig C>
__device__ __forceinline__ void ProduceGradient(const GradientLaunch& launch,
                                                const SmemLayout<C>& smem,
                                                const ClusterPlace<C>& place, int cluster) {
  RingPosition<C.stages> at;
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    const KRun run = KRunOf(launch, tile.batch);
#pragma unroll 1
    for (int step = 0; step < run.steps; ++step) {
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) {
        LoadGradientStage<C>(launch, smem, place, tile, run.batch, at.stage, run.first + step);
      }
      __syncwarp();
      at.Advance();
    }
  }
}

// Where a warpgroup stages a sub-tile: boxes of 64 rows of 128 bytes, which are 32 columns of FP32
// or 64 of 16 bits, swizzled.
template <GemmConfig C>
struct GradientBoxes {
  static constexpr int kBytes = 64 * 128;
  static constexpr int kThreads = 128 + 32;  // a warpgroup and its store warp

  static __device__ uint32_t Of(const SmemLayout<C>& smem, int group) {
    return smem.base + SmemLayout<C>::kStore + group * 64 * C.cols * 4;
  }
};

// Warp `group` of those behind the producer warp: boxes to D, while the next tile is multiplied.
template <GemmConfig C>
__device__ __forceinline__ void StoreGradient(const GradientLaunch& launch,
                                              const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, int cluster,
                                              int group) {
  using Boxes = GradientBoxes<C>;
  const uint32_t boxes = Boxes::Of(smem, group);
  const bool f32 = launch.out == OutType::kF32;
  const int columns = f32 ? 32 : 64;
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const Tile tile = TileAt<C>(launch.tiles, index, place);
#pragma unroll 1
    for (int sub = 0; sub < C.row_subs(); ++sub) {
      ptx::TensorStoreWaitRead();
      ptx::NamedArrive(kBoxesFreeBarrier + group, Boxes::kThreads);
      ptx::NamedBarrier(kBoxesStagedBarrier + group, Boxes::kThreads);
      if (ptx::ElectOne()) {
        const int row = tile.row0 + (group * C.row_subs() + sub) * 64;
#pragma unroll 1
        for (int col = 0; col < C.cols; col += columns) {
          const uint32_t box = boxes + col / columns * Boxes::kBytes;
          if (launch.adds) {
            ptx::TensorAdd(&launch.store_map, box, tile.col0 + col, row, 0, tile.batch);
          } else {
            ptx::TensorStore(&launch.store_map, box, tile.col0 + col, row, 0, tile.batch);
          }
        }
        ptx::TensorStoreCommit();
      }
      __syncwarp();
    }
  }
  ptx::TensorStoreWait();
}

// A math thread's share of a tile, rounded into boxes.
template <GemmConfig C>
struct GradientStage {
  static constexpr int kChunks = C.cols / 8;

  const GradientLaunch& launch;
  uint32_t boxes;
  int group;
  int warp;  // of the warpgroup
  int lane;

  // alpha and C, where there is more to do than to round. C's elements as a chunk's results lie.
  __device__ __forceinline__ float4 Scaled(const Tile& tile, int sub, int chunk, float4 v) const {
    v = make_float4(v.x * launch.alpha, v.y * launch.alpha, v.z * launch.alpha, v.w * launch.alpha);
    if (launch.beta == 0.0f) return v;
    const int row = tile.row0 + (group * C.row_subs() + sub) * 64 + warp * 16 + lane / 4;
    const int col = tile.col0 + chunk * 8 + lane % 4 * 2;
    const int64_t at = tile.batch * launch.c_batch + row * launch.ldc + col;
    const bool left = col < launch.n, right = col + 1 < launch.n;
    if (row < launch.m) {
      if (left) v.x += launch.beta * LoadAs(launch.c, at, launch.out);
      if (right) v.y += launch.beta * LoadAs(launch.c, at + 1, launch.out);
    }
    if (row + 8 < launch.m) {
      const int64_t below = at + 8 * launch.ldc;
      if (left) v.z += launch.beta * LoadAs(launch.c, below, launch.out);
      if (right) v.w += launch.beta * LoadAs(launch.c, below + 1, launch.out);
    }
    return v;
  }

  // Neighbours of a row are 8 bytes of FP32: number j of the row's 16-byte units lies at
  // j ^ row % 8.
  __device__ __forceinline__ void PutF32(int chunk, float4 v) const {
    const uint32_t row = boxes + (warp * 16 + lane / 4) * 128;
    const uint32_t unit = (chunk % 4 * 2 + lane % 4 / 2) ^ (lane / 4);
    const uint32_t at = row + chunk / 4 * GradientBoxes<C>::kBytes + (unit << 4) + lane % 2 * 8;
    ptx::StoreShared2(at, make_float2(v.x, v.y));
    ptx::StoreShared2(at + 8 * 128, make_float2(v.z, v.w));
  }
  // Lane l gives row l % 16 of the warp's, of this chunk or, from lane 16 on, of the next.
  __device__ __forceinline__ void Put16(int chunk, float4 a, float4 b) const {
    const uint32_t row = boxes + (warp * 16 + lane % 16) * 128;
    const uint32_t unit = (chunk % 8 + lane / 16) ^ (lane % 8);
    ptx::StMatrix4(row + chunk / 8 * GradientBoxes<C>::kBytes + (unit << 4),
                   Pack2(a.x, a.y, launch.out), Pack2(a.z, a.w, launch.out),
                   Pack2(b.x, b.y, launch.out), Pack2(b.z, b.w, launch.out));
  }

  template <bool kPlain>
  __device__ __forceinline__ float4 Chunk(const Tile& tile, const float* result, int sub,
                                          int chunk) const {
    const float* const r = result + (sub * kChunks + chunk) * 4;
    const float4 v = make_float4(r[0], r[1], r[2], r[3]);
    return kPlain ? v : Scaled(tile, sub, chunk, v);
  }
  template <bool kPlain>
  __device__ __forceinline__ void Sub(const Tile& tile, const float* result, int sub) const {
    if (launch.out == OutType::kF32) {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        PutF32(chunk, Chunk<kPlain>(tile, result, sub, chunk));
      }
    } else {
#pragma unroll
      for (int chunk = 0; chunk < kChunks; chunk += 2) {
        const float4 left = Chunk<kPlain>(tile, result, sub, chunk);
        Put16(chunk, left, Chunk<kPlain>(tile, result, sub, chunk + 1));
      }
    }
  }

  __device__ __forceinline__ void Put(const Tile& tile,
                                      const float (&result)[C.result_regs()]) const {
    const bool plain = launch.alpha == 1.0f && launch.beta == 0.0f;
#pragma unroll
    for (int sub = 0; sub < C.row_subs(); ++sub) {
      ptx::NamedBarrier(kBoxesFreeBarrier + group, GradientBoxes<C>::kThreads);
      if (plain) {
        Sub<true>(tile, result, sub);
      } else {
        Sub<false>(tile, result, sub);
      }
      ptx::FenceProxyAsync();
      ptx::NamedArrive(kBoxesStagedBarrier + group, GradientBoxes<C>::kThreads);
    }
  }
};

template <GemmConfig C, bool kAE5M2, bool kBE5M2>
__device__ __forceinline__ void ConsumeGradient(const GradientLaunch& launch,
                                                const SmemLayout<C>& smem,
                                                const ClusterPlace<C>& place, int cluster) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  float result[C.result_regs()];
  GradientMath<C, kAE5M2, kBE5M2> math(smem, place, warp, lane, result);
  const GradientStage<C> stage = {launch, GradientBoxes<C>::Of(smem, math.group), math.group,
                                  warp % 4, lane};
#pragma unroll 1
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    const KRun run = KRunOf(launch, tile.batch);
    math.Run(run.steps, run.tail);
    stage.Put(tile, result);
    __syncwarp();
  }
}

template <uint64_t kCode, bool kAE5M2, bool kBE5M2>
__global__ void __launch_bounds__(Decode(kCode).threads(), Decode(kCode).ctas_per_sm)
    Fp8Gradient(const __grid_constant__ GradientLaunch launch) {
  constexpr GemmConfig C = Decode(kCode);
  static_assert(C.moves_registers() && C.scales_columns && C.groups <= 3);
  static_assert(C.smem_bytes() <= kMaxSmemBytes, "a block's shared memory");
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int cluster = Divide(blockIdx.x, launch.cluster_ctas);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;
  if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<C.producer_registers()>();
  if (warp == kProducerWarp) {
    if (ptx::ElectOne()) {
      ptx::PrefetchTensorMap(&launch.row_map);
      ptx::PrefetchTensorMap(&launch.col_map);
      ptx::PrefetchTensorMap(&launch.row_scale_map);
      ptx::PrefetchTensorMap(&launch.col_scale_map);
      ptx::PrefetchTensorMap(&launch.store_map);
#pragma unroll
      for (int stage = 0; stage < C.stages; ++stage) {
        ptx::MbarrierInit(smem.Full(stage), 1);
        ptx::MbarrierInit(smem.Empty(stage),
                          C.stage_readers() * kReleasingLanes * ClusterPlace<C>::kWriters);
      }
      ptx::FenceMbarrierInit();
    }
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, C.math_threads() + 32);
  }
  // Nothing behind the branches: what both roles ran would have the registers of neither.
  if (warp >= kProducerWarp) {
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    if (warp == kProducerWarp) {
      ProduceGradient<C>(launch, smem, place, cluster);
      ptx::GridDependencyLaunch();
    } else if (warp <= kProducerWarp + C.groups) {
      StoreGradient<C>(launch, smem, place, cluster, warp - kProducerWarp - 1);
    }
  } else {
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    ptx::SetMaxRegistersUp<C.math_registers()>();
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    ConsumeGradient<C, kAE5M2, kBE5M2>(launch, smem, place, cluster);
    if constexpr (C.multicast() > 1) {  // peers may still arrive on this CTA's barriers
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GRADIENT_CUH_
