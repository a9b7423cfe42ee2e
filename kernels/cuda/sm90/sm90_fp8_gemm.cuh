// The kernel of the TMA + WGMMA families: its roles.
//
//   HBM / L2 --TMA (multicast)--> ring of stages [rows | cols | scales] --WGMMA--> accumulators
//              producer warp        full ->   <- empty                 math warpgroups   |
//                                                                                        | scales
//        D <--16-byte stores-- staging <--round, bias, ...-- [k groups, cluster: sum] <- result
//          <--or copy engine--

#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_math.cuh"
#include "kernels/cuda/sm90/finishing/sm90_finish.cuh"
#include "kernels/cuda/sm90/float/sm90_float_math.cuh"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_exchange.cuh"
#include "kernels/cuda/sm90/sm90_fp8_math.cuh"
#include "kernels/cuda/sm90/sm90_fp8_producer.cuh"
#include "kernels/cuda/sm90/sm90_fp8_row_math.cuh"
#include "kernels/cuda/sm90/sm90_fp8_store.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C>
constexpr bool Check() {
  static_assert(C.groups >= 1 && C.groups <= 3, "registers: at most three math warpgroups");
  static_assert(C.k_groups == 1 || (C.k_groups == 2 && C.k_blocks % 2 == 0), "halves of a stage");
  static_assert(C.groups * C.k_groups <= 3, "registers");
  static_assert(C.rows % (C.alternates || C.splits_cols ? 64 : 64 * C.groups) == 0,
                "a WGMMA has 64 rows");
  static_assert(
      !C.splits_cols || (!C.skinny() && !C.alternates && C.own_cols() * C.groups == C.cols),
      "the columns are divided evenly");
  static_assert(C.cols % 8 == 0, "WGMMA's columns");
  static_assert(C.rows <= 256 && C.cols <= 256, "a tensor map's box has at most 256 rows");
  static_assert(C.stages >= 2, "a ring");
  static_assert(C.rows / C.share_rows % 8 == 0 && C.cols / C.share_cols % 8 == 0,
                "slices keep to groups of 8 swizzled rows");
  static_assert(C.stages <= 31, "a lane of the producer warp initialises each stage");
  static_assert(kBScales<C> <= 32, "a lane of the producer warp fetches each");
  static_assert(!C.scales_blocks() || !C.skinny() || C.b_scale_count() == (C.gates ? 2 : 1),
                "one of B's scales for all rows, or for gates and for ups");
  static_assert(!C.gates || (C.skinny() ? C.rows == 256 && C.groups == 2 : C.cols == 256),
                "128 gates and their ups: a scale of the result for each row");
  static_assert(C.skinny() || C.cols % 16 == 0, "stmatrix puts down 16 columns at a time");
  static_assert(!C.stores_tile || (!C.skinny() && C.k_groups == 1), "results are in one place");
  static_assert(!C.stores_tile || (C.moves_registers() && C.groups <= 3),
                "beside the producer warp, one that stores for each math warpgroup");
  static_assert(!C.alternates || (!C.promotes() && C.k_groups == 1 && C.groups == 2 &&
                                  C.k_blocks == 1 && !C.stores_tile && !C.skinny()),
                "a tile is one warpgroup's");
  static_assert(C.products() == 1 || (C.k_blocks == 1 && C.row_subs() * C.col_subs() == 1),
                "one chain of all products of a k block");
  static_assert(C.k_blocks == 1 || C.multicast() == 1,
                "a slice of several k blocks does not land where the whole one would");
  static_assert(C.dense_smem_bytes() <= kMaxSmemBytes, "a block's shared memory");
  static_assert(C.ctas_per_sm * (C.dense_smem_bytes() + kReservedSmem) <= kSmemPerSm, "an SM's");
  static_assert(C.result_regs() + C.accumulator_regs() <= (C.groups == 3 ? 128 : 200),
                "a thread's registers");
  return true;
}

template <GemmConfig C, bool kPromotes = C.promotes(), bool kScalesBlocks = C.scales_blocks(),
          bool kHasParts = (C.products() > 1)>
struct MathOf {
  using Type = DirectMath<C>;
};
template <GemmConfig C>
struct MathOf<C, true, true, false> {
  using Type = Math<C>;
};
template <GemmConfig C>
struct MathOf<C, true, false, false> {
  using Type = RowMath<C>;
};
template <GemmConfig C>
struct MathOf<C, true, false, true> {
  using Type = FloatMath<C>;
};

template <GemmConfig C, bool kFinishes>
__device__ __forceinline__ void Consume(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  const int thread = threadIdx.x % C.store_threads();
  const bool stores = warp < C.store_threads() / 32;
  const uint32_t fold = smem.base + SmemLayout<C>::kFold + thread * 16;
  const KRange range = KRange::Of(launch.split, place.k_part);
  const int steps = (range.end - range.begin) * C.blocks_of_group();
  Sum<C> result[C.result_regs()];
  typename MathOf<C>::Type math(smem, place, warp, lane, result);
  using Addend = RingAddend<C, typename MathOf<C>::Type>;
  std::conditional_t<kFinishes, Addend, NoRingAddend> addend(math, launch);
  if constexpr (C.k_groups > 1) {
    if (!stores) {
      for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
        math.Run(steps, TileAt<C>(launch.tiles, index, place));
        if constexpr (kFinishes) addend.Pass();
        Fold<C>::Give(fold, result);
      }
      return;
    }
    Fold<C>::Free();
  }
  Epilogue<C, kFinishes> out(launch, smem, warp, lane);
  Ways<C> ways;
  if (launch.split.parts > 1) ways = Ways<C>::Of(launch.split, smem, place, lane);
  using Out = Epilogue<C, kFinishes>;
  TileBias<C, Out> bias;
  const auto begin = [&](const Tile& tile) {
    out.FetchScales(tile);
    if constexpr (kFinishes) {
      out.tile = tile;
      const Out here = Hidden(out);
      const bool shares = !C.alternates && launch.split.parts > 1;
      if (TileBias<C, Out>::kAhead && !shares) bias.Load(here);
      if (addend.there()) return;
      PrefetchC<C>(here, shares ? launch.split.chunks[place.k_part] : 0,
                   shares ? launch.split.chunks[place.k_part + 1] : out.kChunks);
    }
  };
  const auto store = [&](const Tile& tile, bool rehearsal) {
    out.tile = tile;
    out.AwaitScales();
    if (C.alternates || launch.split.parts == 1) {
      if constexpr (C.scales_results()) out.scales.ApplyInPlace(result);
      if constexpr (kFinishes) {
        const Out here = Hidden(out);
        addend.of_tile = tile.row0 != kBeyond;
        if (!TileBias<C, Out>::kAhead || !addend.of_tile) bias.Load(here);
        StoreFinished<C>(launch, smem, here, result, addend, bias);
      } else {
        StoreWhole<C>(launch, smem, out, result);
      }
    } else {
      Share share = {.from = smem.base + SmemLayout<C>::kStore, .end = 1};
      if constexpr (kFinishes) {
        const Out here = Hidden(out);
        const int first = rehearsal ? 0 : launch.split.chunks[place.k_part];
        const auto addends = Finisher<C, Out>(here).Load(0, first);
        if (!rehearsal) share = Exchange<C>(launch, smem, place, ways, result, thread);
        if (share.begin < share.end) StoreFinishedShare<C>(launch, here, share, thread, addends);
      } else {
        if (!rehearsal) share = Exchange<C>(launch, smem, place, ways, result, thread);
        if (share.begin < share.end) StoreSum<C>(out, share, launch.split.parts, thread);
      }
    }
    __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
  };
  if constexpr (C.alternates) {
    constexpr int kThreads = C.math_threads();
    if (out.group > 0) math.Skip(steps + (kFinishes ? launch.add_stages : 0));
    for (int index = cluster + out.group * launch.clusters; index < launch.tiles.count;
         index += C.groups * launch.clusters) {
      if (index != cluster) ptx::NamedBarrier(kTurnBarrier + out.group, kThreads);
      begin(TileAt<C>(launch.tiles, index, place));
      math.Run(steps, [&] {
        if constexpr (kFinishes) addend.Await();
        if (index + launch.clusters >= launch.tiles.count) return;
        ptx::NamedArrive(kTurnBarrier + 1 - out.group, kThreads);
      });
      if constexpr (kFinishes) {
        store(TileAt<C>(launch.tiles, index, place), false);
        math.Skip(steps + launch.add_stages);
      } else {
        math.Skip(steps);
        store(TileAt<C>(launch.tiles, index, place), false);
      }
    }
    return;
  }
  // A round without a tile multiplies nothing and stores outside D: GemmConfig::rehearses().
  constexpr Tile kNoTile = {kBeyond, kBeyond, 0};
  int index = cluster;
  if constexpr (C.takes_spares()) {
    do {
      Tile tile = kNoTile;
      if (index < launch.tiles.count) {
        tile = TileAt<C>(launch.tiles, index, place);
        begin(tile);
        math.Run(steps, tile);
      } else {
        math.Clear();
      }
      index += launch.clusters;
      store(tile, false);
    } while (index < launch.tiles.count);
  } else {
    int rehearsal = C.rehearses();
    // Else the compiler makes the first round a copy of its own.
    if constexpr (C.rehearses()) asm volatile("" : "+r"(rehearsal));
    while (index < launch.tiles.count) {
      Tile tile = kNoTile;
      if (rehearsal) {
        math.Clear();
      } else {
        tile = TileAt<C>(launch.tiles, index, place);
        begin(tile);
        math.Run(steps, tile);
        index += launch.clusters;
        if constexpr (C.k_groups > 1) {
          Fold<C>::Take(fold, result);
          if (index < launch.tiles.count) Fold<C>::Free();
        }
      }
      store(tile, rehearsal);
      rehearsal = 0;
    }
  }
}

// Of every kind of operands. One that finishes is for what NeedsFinish(): the same code in all
// kernels took those without it up to 3.5 % longer. Its own body: out of a function that it calls,
// ptxas makes other code.
template <uint64_t kCode, bool kFinishes>
__global__ void __launch_bounds__(Decode(kCode).threads(), Decode(kCode).ctas_per_sm)
    Gemm(const __grid_constant__ GemmLaunch launch) {
  constexpr GemmConfig C = Decode(kCode);
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int cluster = Divide(blockIdx.x, launch.cluster_ctas);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;

  // Before anything else: the math warps' registers come from here, and they wait for them.
  if constexpr (C.moves_registers()) {
    if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<C.producer_registers()>();
  }
  // Math warps go on only behind this: their code comes from memory by the same way.
  if (warp == kProducerWarp) {
    Start<C>(launch, smem, place, cluster);
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, C.math_threads() + 32);
    if constexpr (C.ctas_per_sm == 1) {  // of two, each would hold up the other's start
      StartScales<C>(launch, smem, place, cluster, threadIdx.x % 32);
    }
  }
  if (warp >= kProducerWarp) {
    if constexpr (C.stores_tile) {
      const int group = warp - kProducerWarp - 1;
      if (group >= 0 && group < C.groups && launch.stores_by_copy) {
        if constexpr (C.multicast() > 1) {
          ptx::ClusterArriveRelaxed();
          ptx::ClusterWait();
        }
        ptx::GridDependencyWait();
        StoreTiles<C>(launch, smem, place, cluster, group);
      }
    }
    if (warp > kProducerWarp) return;
    const int lane = threadIdx.x % 32;
    if (C.multicast() > 1 || launch.split.parts > 1) ptx::ClusterArriveRelaxed();
    if constexpr (C.multicast() > 1) {
      ptx::ClusterWait();
    } else if (kWaitsForPeersAtOnce && launch.split.parts > 1) {
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    if constexpr (C.ctas_per_sm > 1) StartScales<C>(launch, smem, place, cluster, lane);
    const RingPosition<C.stages> end = Produce<C, kFinishes>(launch, smem, place, cluster, lane);
    ptx::GridDependencyLaunch();
    if (launch.split.parts > 1) TellInboxFree<C>(launch.split, smem, place, lane);
    AwaitGivenBack<C>(smem, end);
  } else {
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<C.math_registers()>();
    if (C.multicast() > 1 || launch.split.parts > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    Consume<C, kFinishes>(launch, smem, place, cluster);
  }
}

}  // namespace gemmd::kernels::cuda
