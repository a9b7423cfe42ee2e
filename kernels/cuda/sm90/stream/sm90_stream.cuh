// The kernel of stream_k.h: ring, math and store of the dense kernels, with a walk over parts of
// tiles.

#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finish.cuh"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"
#include "kernels/cuda/sm90/sm90_fp8_producer.cuh"
#include "kernels/cuda/sm90/sm90_fp8_store.cuh"
#include "kernels/cuda/sm90/stream/sm90_stream_walk.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C>
constexpr bool CheckStream() {
  static_assert(Check<C>() && (C.promotes() || C.element_bytes() == 2), "sums are FP32");
  static_assert(C.multicast() == 1 && C.ctas_per_sm == 1 && C.k_groups == 1 && C.k_blocks == 1);
  static_assert(!C.alternates && !C.stores_tile && C.groups >= 2);
  static_assert(C.stages > kStagesAtStart);
  static_assert(C.groups == 3 ? C.result_regs() <= 64 : C.result_regs() <= 128,
                "64 more are on their way from memory");
  return true;
}

// Whether the first stages are asked for in front of everything else in the kernel's code, as dense
// kernels do it: cold, code comes line by line.
template <GemmConfig C>
inline constexpr bool kStartsInFront = C.promotes();

// How many stages of its first tile a CTA asks for in front.
template <GemmConfig C>
__device__ __forceinline__ int StagesInFront(const StreamWalk<C>& walk, const Tile& tile) {
  if (!kStartsInFront<C> || !walk.valid() || walk.Outside(tile)) return 0;
  return min(kStagesAtStart, walk.to - walk.from);
}

// The ring's barriers and its first stages, by one lane of the producer warp.
template <GemmConfig C>
__device__ __forceinline__ void StartStream(const StreamLaunch& launch, const SmemLayout<C>& smem,
                                            const ClusterPlace<C>& place) {
  if (!ptx::ElectOne()) return;
  ptx::PrefetchTensorMap(&launch.row_map);
  ptx::PrefetchTensorMap(&launch.col_map);
  if constexpr (C.scales_blocks()) ptx::PrefetchTensorMap(&launch.scale_map);
#pragma unroll
  for (int stage = 0; stage < C.stages; ++stage) {
    ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
    ptx::MbarrierInit(smem.Empty(stage), C.stage_readers() * kReleasingLanes);
  }
  ptx::FenceMbarrierInit();
  if constexpr (kStartsInFront<C>) {
    ptx::GridDependencyWait();
    const StreamWalk<C> walk(launch, blockIdx.x);
    const Tile tile = walk.At(place);
    const int stages = StagesInFront<C>(walk, tile);
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      LoadStage<C>(launch, smem, place, tile, stage, walk.from + stage);
    }
  }
}

// B's scales of those stages, by the whole warp.
template <GemmConfig C>
__device__ __forceinline__ void StartStreamScales(const StreamLaunch& launch,
                                                  const SmemLayout<C>& smem,
                                                  const ClusterPlace<C>& place, int lane) {
  ptx::GridDependencyWait();
  const StreamWalk<C> walk(launch, blockIdx.x);
  const Tile tile = walk.At(place);
  const int stages = StagesInFront<C>(walk, tile);
  if (stages == 0) return;
  const BScaleLoads<C> b_scales(launch.args, tile, lane);
  b_scales.Load(launch, smem, lane, 0, walk.from);
  if (stages > 1) b_scales.Load(launch, smem, lane, 1, walk.from + 1);
}

template <GemmConfig C, bool kAdds>
__device__ __forceinline__ void ProduceStream(const StreamLaunch& launch, const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, int lane) {
  StreamWalk<C> walk(launch, blockIdx.x);
  int started = StagesInFront<C>(walk, walk.At(place));
  RingPosition<C.stages> at = {.stage = started};
  for (; walk.valid(); walk.Next()) {
    const Tile tile = walk.At(place);
    if (walk.Outside(tile)) continue;
    const BScaleLoads<C> b_scales(launch.args, tile, lane);
#pragma unroll 1
    for (int block = walk.from + started; block < walk.to; ++block) {
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) LoadStage<C>(launch, smem, place, tile, at.stage, block);
      b_scales.Load(launch, smem, lane, at.stage, block);
      __syncwarp();
      at.Advance();
    }
    if constexpr (kAdds) {
      if (walk.EndsTile()) LoadAddend<C>(launch, smem, tile, b_scales, lane, at);
    }
    started = 0;
  }
}

// Math whose results may begin with the sums of others. Of tiles of A's rows, as all of these are.
template <GemmConfig C>
struct AddingMath : Math<C> {
  static_assert(!C.skinny() && !C.double_accumulators());
  using Math<C>::Math;

  // `steps` k blocks of `tile`, on top of what is there.
  __device__ __forceinline__ void Add(int steps, const Tile& tile) {
    constexpr int kRun = C.b_scale_run();
    this->template RunByFirst<LeastOf(C.mma_cols(), kRun)>(steps, kRun - tile.col0 % kRun);
  }
};
template <GemmConfig C, bool kPromotes = C.promotes(), bool kScalesBlocks = C.scales_blocks()>
struct StreamMathOf {
  using Type = DirectMath<C>;
};
template <GemmConfig C>
struct StreamMathOf<C, true, true> {
  using Type = AddingMath<C>;
};
template <GemmConfig C>
struct StreamMathOf<C, true, false> {
  using Type = RowMath<C>;
};

template <GemmConfig C, bool kFinishes>
__device__ __forceinline__ void ConsumeStream(const StreamLaunch& launch, const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  Sum<C> result[C.result_regs()];
  typename StreamMathOf<C>::Type math(smem, place, warp, lane, result);
  Epilogue<C, kFinishes> out(launch, smem, warp, lane);
  using Addend = RingAddend<C, typename StreamMathOf<C>::Type>;
  std::conditional_t<kFinishes, Addend, NoRingAddend> addend(math, launch);
  for (StreamWalk<C> walk(launch, blockIdx.x); walk.valid(); walk.Next()) {
    const Tile tile = walk.At(place);
    if (walk.Outside(tile)) continue;
    const auto take = [&] {
      ptx::NamedBarrier(kThereBarrier + out.group, kFlagThreads);
      walk.EachCtaBefore([&](int cta) { TakePartial<C>(launch.stream, cta, result); });
    };
    if (walk.EndsTile()) {
      out.FetchScales(tile);
      if constexpr (kFinishes) {
        out.tile = tile;
        if (!addend.there()) PrefetchC<C>(out, 0, out.kChunks);
      }
    }
    if constexpr (C.promotes()) {
      math.Clear();
      if (walk.EndsTile() && walk.from > 0 && launch.stream.takes_first) take();
      math.Add(walk.to - walk.from, tile);
    } else {
      math.Run(walk.to - walk.from, tile);
    }
    if (!walk.EndsTile()) {
      GivePartial<C>(launch.stream, blockIdx.x, out.group, result);
      continue;
    }
    if (walk.from > 0 && !(C.promotes() && launch.stream.takes_first)) take();
    out.tile = tile;
    if constexpr (C.scales_results()) {
      out.AwaitScales();
      out.scales.ApplyInPlace(result);
    }
    if constexpr (kFinishes) {
      const auto here = Hidden(out);
      TileBias<C, Epilogue<C, kFinishes>> bias;
      bias.Load(here);
      StoreFinished<C>(launch, smem, here, result, addend, bias);
    } else {
      StoreWhole<C>(launch, smem, out, result);
    }
    __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
  }
}

// A producer of a whole warpgroup: beside the warp that fills the ring, one for the flags of each
// math warpgroup. Sums that are taken need registers beside the results, which come from there.
constexpr int StreamThreads(const GemmConfig& c) { return c.math_threads() + 128; }
template <GemmConfig C>
inline constexpr int kStreamProducerRegisters = C.groups == 3 ? 32 : 40;
template <GemmConfig C>
inline constexpr int kStreamMathRegisters = C.groups == 3 ? 160 : 232;

template <uint64_t kCode, bool kFinishes>
__global__ void __launch_bounds__(StreamThreads(Decode(kCode)), 1)
    GemmStream(const __grid_constant__ StreamLaunch launch) {
  constexpr GemmConfig C = Decode(kCode);
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = {};
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;
  const auto start = [&] {
    StartStream<C>(launch, smem, place);
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, C.math_threads() + 32);
  };
  if constexpr (kStartsInFront<C>) {
    if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<kStreamProducerRegisters<C>>();
    if (warp == kProducerWarp) {
      start();
      StartStreamScales<C>(launch, smem, place, threadIdx.x % 32);
    }
  }
  if (warp >= kProducerWarp) {
    if constexpr (!kStartsInFront<C>) ptx::SetMaxRegistersDown<kStreamProducerRegisters<C>>();
    if (warp > kProducerWarp) {
      const int group = warp - kProducerWarp - 1;
      ptx::GridDependencyWait();
      if (group < C.groups) PassFlags<C>(launch, place, blockIdx.x, group, threadIdx.x % 32);
      return;
    }
    if constexpr (!kStartsInFront<C>) start();
    ptx::GridDependencyWait();
    ProduceStream<C, kFinishes>(launch, smem, place, threadIdx.x % 32);
    ptx::GridDependencyLaunch();
  } else {
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    ptx::SetMaxRegistersUp<kStreamMathRegisters<C>>();
    ptx::GridDependencyWait();
    ConsumeStream<C, kFinishes>(launch, smem, place);
  }
}

}  // namespace gemmd::kernels::cuda
