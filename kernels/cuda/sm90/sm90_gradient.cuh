// What gradients of weights have in common, whatever they multiply: a walk over (group, tile), in
// which a tile's k blocks, how many and from where, are read on the device. Tensor maps are of
// whole operands: a group's columns are coordinates in them, and nothing is written in flight.
//
// A kind of operands has
//   kConfig                         its GemmConfig
//   kStep                           columns at a multiple of which the copy engine begins, where
//                                   groups begin anywhere
//   Math                            a math warpgroup, with Run(run)
//   Prefetch(launch)                of its operands' tensor maps
//   Load(launch, smem, place, tile, run, stage, step)   one stage of the ring

#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/sm90/gradient.h"
#include "kernels/cuda/sm90/sm90_fp8_gradient_store.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"
#include "kernels/cuda/sm90/sm90_gradient_walk.cuh"

namespace gemmd::kernels::cuda {

// Of a math thread: results, accumulators and column scales take all that the others can spare.
inline constexpr int kGradientMathRegisters = 240;
inline constexpr int kGradientProducerRegisters = 24;

// Between both math warpgroups: a stage's columns behind the group's end are zeros. Gradients fold
// nothing.
inline constexpr int kMaskedBarrier = kFoldFullBarrier;

// A group's k blocks of the operands.
struct KRun {
  int first = 0;  // column
  int steps = 0;
  int head = 0;   // columns of the first block that are not the group's
  int tail = 0;   // columns of the last block, 0: all
  int batch = 0;  // of A and B
};

// Where a group's columns begin anywhere, its first block does at a multiple of `kStep`.
template <GemmConfig C, int kStep>
__device__ __forceinline__ KRun KRunOf(const GradientLaunch& launch, int group) {
  constexpr int kBlock = C.block_k();
  KRun run;
  int columns = launch.k;
  if (launch.starts != nullptr) {
    run.first = launch.starts[group];
    columns = launch.sizes[group];
  } else {
    run.batch = group;
  }
  if constexpr (kStep > 1) {
    run.head = columns > 0 ? run.first % kStep : 0;
    run.first -= run.head;
    columns += run.head;
  }
  run.steps = (columns + kBlock - 1) / kBlock;
  run.tail = columns % kBlock;
  return run;
}

template <class Kind>
__device__ __forceinline__ RingPosition<Kind::kConfig.stages> ProduceGradient(
    const GradientLaunch& launch, const SmemLayout<Kind::kConfig>& smem,
    const ClusterPlace<Kind::kConfig>& place, int cluster) {
  constexpr GemmConfig C = Kind::kConfig;
  RingPosition<C.stages> at;
  const GradientWalk walk = {launch, cluster, static_cast<int>(threadIdx.x % 32)};
  for (int i = 0;; ++i) {
    const int index = walk.At(i);
    if (index < 0) break;
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    const KRun run = KRunOf<C, Kind::kStep>(launch, tile.batch);
#pragma unroll 1
    for (int step = 0; step < run.steps; ++step) {
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) Kind::Load(launch, smem, place, tile, run, at.stage, step);
      __syncwarp();
      at.Advance();
    }
  }
  return at;
}

template <class Kind>
__device__ __forceinline__ void ConsumeGradient(const GradientLaunch& launch,
                                                const SmemLayout<Kind::kConfig>& smem,
                                                const ClusterPlace<Kind::kConfig>& place,
                                                int cluster) {
  constexpr GemmConfig C = Kind::kConfig;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  float result[C.result_regs()];
  typename Kind::Math math(smem, place, warp, lane, result);
  GradientStage<C> stage = {launch, smem, math.group, warp % 4, lane};
  const GradientWalk walk = {launch, cluster, lane};
#pragma unroll 1
  for (int i = 0;; ++i) {
    const int index = walk.At(i);
    if (index < 0) break;
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    const KRun run = KRunOf<C, Kind::kStep>(launch, tile.batch);
    math.Run(run);
    stage.Put(tile, result);
    __syncwarp();
  }
}

// The whole of a kernel.
template <class Kind>
__device__ __forceinline__ void RunGradient(const GradientLaunch& launch) {
  constexpr GemmConfig C = Kind::kConfig;
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
      Kind::Prefetch(launch);
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
      const auto end = ProduceGradient<Kind>(launch, smem, place, cluster);
      ptx::GridDependencyLaunch();
      AwaitGivenBack<C>(smem, end);
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
    ConsumeGradient<Kind>(launch, smem, place, cluster);
  }
}

}  // namespace gemmd::kernels::cuda
