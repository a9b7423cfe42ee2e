// The kernel of stream_k.h: ring, math and store of the dense kernels, with a walk over parts of
// tiles.

#ifndef GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_CUH_
#define GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_math.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_producer.cuh"
#include "kernels/cuda/sm90/sm90_fp8_store.cuh"
#include "kernels/cuda/sm90/sm90_stream_walk.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C>
constexpr bool CheckStream() {
  static_assert(!C.promotes() && C.element_bytes() == 2, "accumulators are FP32 sums");
  static_assert(C.multicast() == 1 && C.ctas_per_sm == 1 && C.k_groups == 1 && C.k_blocks == 1);
  static_assert(!C.alternates && !C.stores_tile && C.groups == 2);
  static_assert(C.smem_bytes() <= kMaxSmemBytes, "a block's shared memory");
  static_assert(C.result_regs() <= 128, "64 more are on their way from memory");
  return true;
}

// The ring's barriers, by one lane of the producer warp.
template <GemmConfig C>
__device__ __forceinline__ void StartStream(const StreamLaunch& launch, const SmemLayout<C>& smem) {
  if (!ptx::ElectOne()) return;
  ptx::PrefetchTensorMap(&launch.row_map);
  ptx::PrefetchTensorMap(&launch.col_map);
#pragma unroll
  for (int stage = 0; stage < C.stages; ++stage) {
    ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
    ptx::MbarrierInit(smem.Empty(stage), C.stage_readers() * kReleasingLanes);
  }
  ptx::FenceMbarrierInit();
}

template <GemmConfig C>
__device__ __forceinline__ void ProduceStream(const StreamLaunch& launch, const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place) {
  RingPosition<C.stages> at;
  for (StreamWalk<C> walk(launch, blockIdx.x); walk.valid(); walk.Next()) {
    const Tile tile = walk.At(place);
    if (walk.Outside(tile)) continue;
#pragma unroll 1
    for (int block = walk.from; block < walk.to; ++block) {
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) LoadStage<C>(launch, smem, place, tile, at.stage, block);
      __syncwarp();
      at.Advance();
    }
  }
}

template <GemmConfig C>
__device__ __forceinline__ void ConsumeStream(const StreamLaunch& launch, const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  Sum<C> result[C.result_regs()];
  DirectMath<C> math(smem, place, warp, lane, result);
  Epilogue<C> out(launch, smem, warp, lane);
  for (StreamWalk<C> walk(launch, blockIdx.x); walk.valid(); walk.Next()) {
    const Tile tile = walk.At(place);
    if (walk.Outside(tile)) continue;
    math.Run(walk.to - walk.from, tile);
    if (!walk.EndsTile()) {
      GivePartial<C>(launch.stream, blockIdx.x, out.group, result);
      continue;
    }
    if (walk.from > 0) {
      ptx::NamedBarrier(kThereBarrier + out.group, kFlagThreads);
      walk.EachBefore([&](int cta) { TakePartial<C>(launch.stream, cta, result); });
    }
    out.tile = tile;
    StoreWhole<C>(launch, smem, out, result);
    __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
  }
}

// A producer of a whole warpgroup: beside the warp that fills the ring, one for the flags of each
// math warpgroup. Sums that are taken need registers beside the results, which come from there.
constexpr int StreamThreads(const GemmConfig& c) { return c.math_threads() + 128; }
inline constexpr int kStreamProducerRegisters = 40;
inline constexpr int kStreamMathRegisters = 232;

template <uint64_t kCode>
__global__ void __launch_bounds__(StreamThreads(Decode(kCode)), 1)
    GemmStream(const __grid_constant__ StreamLaunch launch) {
  constexpr GemmConfig C = Decode(kCode);
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = {};
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;
  if (warp >= kProducerWarp) {
    ptx::SetMaxRegistersDown<kStreamProducerRegisters>();
    if (warp > kProducerWarp) {
      const int group = warp - kProducerWarp - 1;
      ptx::GridDependencyWait();
      if (group < C.groups) PassFlags<C>(launch, place, blockIdx.x, group, threadIdx.x % 32);
      return;
    }
    StartStream<C>(launch, smem);
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, C.math_threads() + 32);
    ptx::GridDependencyWait();
    ProduceStream<C>(launch, smem, place);
    ptx::GridDependencyLaunch();
  } else {
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    ptx::SetMaxRegistersUp<kStreamMathRegisters>();
    ptx::GridDependencyWait();
    ConsumeStream<C>(launch, smem, place);
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_CUH_
