// A tile whose whole sum is in one CTA's registers, to D: rounded and in 16-byte units, by the copy
// engine, or by way of FP32 where more than rounding is asked for.

#pragma once

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// The i-th four of a thread's results: one chunk of the epilogue. INT8's have been scaled.
template <GemmConfig C>
__device__ __forceinline__ float4 ChunkOf(const Sum<C> (&result)[C.result_regs()], int i) {
  return make_float4(BitsOf(result[4 * i]), BitsOf(result[4 * i + 1]), BitsOf(result[4 * i + 2]),
                     BitsOf(result[4 * i + 3]));
}

// By the copy engine: each math warpgroup rounds its part of the tile into boxes, and a warp of the
// producer's, which has nothing else to do, has them copied and waits until they have been read. A
// math warp that did so itself would wait behind the loads that the copy engine has been asked for.
template <GemmConfig C>
struct StoreBoxes {
  static constexpr int kAcross = C.cols / C.store_cols();
  static constexpr int kCount = C.row_subs() * kAcross;  // of a warpgroup
  static constexpr int kBytes = kStoreRows * C.store_cols() * 2;
  static constexpr int kChunks = C.store_cols() / 8;
  // A math warpgroup and its store warp.
  static constexpr int kThreads = 128 + 32;

  static __device__ uint32_t Of(const SmemLayout<C>& smem, int group) {
    return smem.base + SmemLayout<C>::kStore + group * kCount * kBytes;
  }
  // Where the 16 bytes of a chunk of 8 columns lie, from the beginning of their row in a
  // warpgroup's boxes on. Boxes of 64 columns are swizzled besides.
  static constexpr int Offset(int chunk) { return chunk / kChunks * kBytes + chunk % kChunks * 16; }
};

// Warp `group` of those behind the producer warp.
template <GemmConfig C>
__device__ __forceinline__ void StoreTiles(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                           const ClusterPlace<C>& place, int cluster, int group) {
  using Boxes = StoreBoxes<C>;
  const uint32_t boxes = Boxes::Of(smem, group);
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    if (index != cluster) ptx::TensorStoreWaitRead();
    ptx::NamedArrive(kBoxesFreeBarrier + group, Boxes::kThreads);
    ptx::NamedBarrier(kBoxesStagedBarrier + group, Boxes::kThreads);
    if (ptx::ElectOne()) {
#pragma unroll
      for (int box = 0; box < Boxes::kCount; ++box) {
        const int sub = group * C.row_subs() + box / Boxes::kAcross;
        ptx::TensorStore(&launch.store_map, boxes + box * Boxes::kBytes,
                         tile.col0 + box % Boxes::kAcross * C.store_cols(),
                         tile.row0 + sub * kStoreRows, 0, tile.batch);
      }
      ptx::TensorStoreCommit();
    }
    __syncwarp();
  }
  ptx::TensorStoreWait();
}

// The math warps' side of it: they go on to the next tile while this one leaves.
template <GemmConfig C, class Out>
__device__ __forceinline__ void StageTile(const Out& out, const SmemLayout<C>& smem,
                                          const Sum<C> (&result)[C.result_regs()], OutType type) {
  using Boxes = StoreBoxes<C>;
  // Lane l gives row l % 16 of the warp's, of one chunk of 8 columns or, from lane 16 on, of the
  // next.
  constexpr bool kSwizzled = C.store_cols() == 64;
  const uint32_t right = out.lane / 16;
  const uint32_t row = Boxes::Of(smem, out.group) +
                       (out.warp * 16 + out.lane % 16) * (C.store_cols() * 2) +
                       (kSwizzled ? (right ^ out.lane % 8) << 4 : 0);
  ptx::NamedBarrier(kBoxesFreeBarrier + out.group, Boxes::kThreads);
#pragma unroll
  for (int pair = 0; pair < C.row_subs() * C.cols / 16; ++pair) {
    const float4 a = ChunkOf<C>(result, 2 * pair);
    const float4 b = ChunkOf<C>(result, 2 * pair + 1);
    const uint32_t at = Boxes::Offset(2 * pair);
    const uint32_t step = Boxes::Offset(2 * pair + 1) - at;
    const uint32_t target =
        kSwizzled ? (row ^ at % 128) + (at - at % 128) : row + at + right * step;
    ptx::StMatrix4(target, Pack2(a.x, a.y, type), Pack2(a.z, a.w, type), Pack2(b.x, b.y, type),
                   Pack2(b.z, b.w, type));
  }
  ptx::FenceProxyAsync();
  ptx::NamedArrive(kBoxesStagedBarrier + out.group, Boxes::kThreads);
}

// Half of each warp's rows at a time.
template <GemmConfig C, bool kWhole, class Out>
__device__ __forceinline__ void StoreHalves(const Out& out,
                                            const Sum<C> (&result)[C.result_regs()]) {
  static_assert(C.row_subs() == 1 && Out::kChunks % 8 == 0);
#pragma unroll
  for (int first = 0; first < Out::kChunks; first += 8) {
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      uint32_t words[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* const of_rows = result + 4 * (first + i) + 2 * lower;
        words[i] = Pack2(of_rows[0], of_rows[1], out.args.out);
      }
      out.template StoreHalf<kWhole>(0, first, lower, words);
    }
  }
}

template <GemmConfig C, bool kWhole, class Out>
__device__ __forceinline__ void StoreRounded(const Out& out,
                                             const Sum<C> (&result)[C.result_regs()]) {
  if constexpr (C.stages_halves()) return StoreHalves<C, kWhole>(out, result);
  constexpr int kAtOnce = C.skinny() ? 1 : 2;
#pragma unroll
  for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
    for (int first = 0; first < Out::kChunks; first += Out::kStep) {
      const int last = min(first + Out::kStep, Out::kChunks);
      out.Sync();
#pragma unroll
      for (int chunk = first; chunk < last; chunk += kAtOnce) {
        const float4 v = ChunkOf<C>(result, sub * Out::kChunks + chunk);
        if constexpr (kAtOnce == 2) {
          out.StagePair(chunk, first, v, ChunkOf<C>(result, sub * Out::kChunks + chunk + 1));
        } else {
          out.Stage(chunk, first, v);
        }
      }
      out.Sync();
      if constexpr (kWhole) {
        out.CopyWhole(sub, first, last);
      } else {
        out.CopyUnits(sub, first, last);
      }
    }
  }
}

template <GemmConfig C, class Out>
__device__ __forceinline__ void StoreWhole(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                           const Out& out,
                                           const Sum<C> (&result)[C.result_regs()]) {
  if (out.general) {
#pragma unroll
    for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
      for (int first = 0; first < Out::kChunks; first += Out::kStepF32) {
        const int last = min(first + Out::kStepF32, Out::kChunks);
        out.Sync();
#pragma unroll
        for (int chunk = first; chunk < last; ++chunk) {
          out.StageF32(chunk, first, ChunkOf<C>(result, sub * Out::kChunks + chunk));
        }
        out.Sync();
        out.Finish(sub, first, last);
      }
    }
    return;
  }
  if constexpr (C.stores_tile) {
    if (launch.stores_by_copy) {
      // Else conversions to either type are issued, a fifth of the way. Other tiles lose more by
      // the second copy of the code, those of 256 rows up to 6 %.
      if constexpr (C.rows * C.cols > 128 * 128 && C.row_subs() == 1 && C.store_cols() == 64) {
        if (out.args.out == OutType::kBF16) {
          return StageTile<C>(out, smem, result, OutType::kBF16);
        }
      }
      return StageTile<C>(out, smem, result, out.args.out);
    }
  }
  if (!C.stores_tile && out.whole) {  // what is whole has left by the copy engine
    StoreRounded<C, true>(out, result);
  } else {
    StoreRounded<C, false>(out, result);
  }
}

}  // namespace gemmd::kernels::cuda
