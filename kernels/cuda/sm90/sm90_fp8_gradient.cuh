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
#include "kernels/cuda/sm90/gradient.h"
#include "kernels/cuda/sm90/sm90_fp8_gradient_math.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gradient_store.cuh"

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

template <GemmConfig C, bool kAE5M2, bool kBE5M2>
__device__ __forceinline__ void ConsumeGradient(const GradientLaunch& launch,
                                                const SmemLayout<C>& smem,
                                                const ClusterPlace<C>& place, int cluster) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  float result[C.result_regs()];
  GradientMath<C, kAE5M2, kBE5M2> math(smem, place, warp, lane, result);
  GradientStage<C> stage = {launch, smem, math.group, warp % 4, lane};
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
  static_assert(C.moves_registers() && C.scales_columns && C.groups == 2);
  static_assert(GradientBoxes<C>::kSmemBytes <= kMaxSmemBytes, "a block's shared memory");
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int cluster = Divide(blockIdx.x, launch.cluster_ctas);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;
  constexpr int kWaitForBarriers = C.math_threads() + 32 * (1 + C.groups);
  if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<kGradientProducerRegisters>();
  if (warp == kProducerWarp) {
    if (ptx::ElectOne()) {
      ptx::PrefetchTensorMap(&launch.row_map);
      ptx::PrefetchTensorMap(&launch.col_map);
      ptx::PrefetchTensorMap(&launch.row_scale_map);
      ptx::PrefetchTensorMap(&launch.col_scale_map);
      ptx::PrefetchTensorMap(&launch.store_map);
      if (launch.c_in_boxes) ptx::PrefetchTensorMap(&launch.c_map);
#pragma unroll
      for (int stage = 0; stage < C.stages; ++stage) {
        ptx::MbarrierInit(smem.Full(stage), 1);
        ptx::MbarrierInit(smem.Empty(stage),
                          C.stage_readers() * kReleasingLanes * ClusterPlace<C>::kWriters);
      }
#pragma unroll
      for (int i = 0; i < C.groups * 2; ++i) {
        ptx::MbarrierInit(GradientBoxes<C>::Full(smem, i / 2, i % 2), 1);
      }
      ptx::FenceMbarrierInit();
    }
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, kWaitForBarriers);
  } else if (warp > kProducerWarp && warp <= kProducerWarp + C.groups) {
    // A store warp's first act may be to fetch C: on a barrier that is not made yet the kernel
    // dies.
    ptx::NamedBarrier(kReadyBarrier, kWaitForBarriers);
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
    ptx::NamedBarrier(kReadyBarrier, kWaitForBarriers);
    ptx::SetMaxRegistersUp<kGradientMathRegisters>();
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
