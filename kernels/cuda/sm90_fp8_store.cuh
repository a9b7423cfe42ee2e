// A tile whose whole sum is in one CTA's registers, to D: rounded and in 16-byte units, by the copy
// engine, or by way of FP32 where more than rounding is asked for.

#ifndef GEMMD_KERNELS_CUDA_SM90_FP8_STORE_CUH_
#define GEMMD_KERNELS_CUDA_SM90_FP8_STORE_CUH_

#include "kernels/cuda/gemm_family.h"
#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// The i-th four of a thread's results: one chunk of the epilogue.
template <GemmConfig C>
__device__ __forceinline__ float4 ChunkOf(const float (&result)[C.result_regs()], int i) {
  return make_float4(result[4 * i], result[4 * i + 1], result[4 * i + 2], result[4 * i + 3]);
}

// Where the 16 bytes of a chunk of 8 columns lie, from the beginning of their row in the warp's
// boxes on. Boxes of 64 columns are swizzled besides.
template <GemmConfig C>
constexpr int ChunkOffset(int chunk) {
  constexpr int kChunksOfBox = C.store_cols() / 8;
  return chunk / kChunksOfBox * kStoreRows * C.store_cols() * 2 + chunk % kChunksOfBox * 16;
}

// Every warp rounds its rows into boxes of 16 rows and starts their copies: they leave while the
// next tile multiplies.
template <GemmConfig C>
__device__ __forceinline__ void StoreByCopy(const GemmLaunch& launch, const Epilogue<C>& out,
                                            const float (&result)[C.result_regs()]) {
  constexpr int kAcross = C.cols / C.store_cols();
  constexpr int kBoxes = C.row_subs() * kAcross;
  constexpr int kBoxBytes = kStoreRows * C.store_cols() * 2;
  const uint32_t boxes = out.tile_staging + (out.group * 4 + out.warp) * kBoxes * kBoxBytes;
  ptx::TensorStoreWaitRead();  // of the tile before
  __syncwarp();
  // Lane l gives row l % 16 of one chunk of 8 columns or, from lane 16 on, of the next.
  constexpr bool kSwizzled = C.store_cols() == 64;
  const uint32_t right = out.lane / 16;
  const uint32_t row =
      boxes + out.lane % 16 * (C.store_cols() * 2) + (kSwizzled ? (right ^ out.lane % 8) << 4 : 0);
#pragma unroll
  for (int pair = 0; pair < C.row_subs() * C.cols / 16; ++pair) {
    const float4 a = ChunkOf<C>(result, 2 * pair);
    const float4 b = ChunkOf<C>(result, 2 * pair + 1);
    const uint32_t at = ChunkOffset<C>(2 * pair);
    const uint32_t step = ChunkOffset<C>(2 * pair + 1) - at;
    const uint32_t target =
        kSwizzled ? (row ^ at % 128) + (at - at % 128) : row + at + right * step;
    ptx::StMatrix4(target, Pack2(a.x, a.y, out.args.out), Pack2(a.z, a.w, out.args.out),
                   Pack2(b.x, b.y, out.args.out), Pack2(b.z, b.w, out.args.out));
  }
  ptx::FenceProxyAsync();
  __syncwarp();
  if (ptx::ElectOne()) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ptx::TensorStore(&launch.store_map, boxes + box * kBoxBytes,
                       out.tile.col0 + box % kAcross * C.store_cols(),
                       out.SubRow(box / kAcross) + out.warp * kStoreRows, 0, out.tile.batch);
    }
    ptx::TensorStoreCommit();
  }
}

template <GemmConfig C, bool kWhole>
__device__ __forceinline__ void StoreRounded(const Epilogue<C>& out,
                                             const float (&result)[C.result_regs()]) {
  using Out = Epilogue<C>;
  constexpr int kAtOnce = C.skinny() || C.cols % 16 != 0 ? 1 : 2;
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

template <GemmConfig C>
__device__ __forceinline__ void StoreWhole(const GemmLaunch& launch, const Epilogue<C>& out,
                                           const float (&result)[C.result_regs()]) {
  using Out = Epilogue<C>;
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
    if (launch.stores_by_copy) return StoreByCopy<C>(launch, out, result);
  }
  if (!C.stores_tile && out.whole) {  // what is whole has left by the copy engine
    StoreRounded<C, true>(out, result);
  } else {
    StoreRounded<C, false>(out, result);
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_STORE_CUH_
