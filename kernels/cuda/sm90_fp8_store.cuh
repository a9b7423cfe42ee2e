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

// Every warp rounds its rows into boxes of 16 x 64, the k-th 16 bytes of a row where the 128-byte
// swizzle wants them, and starts their copies: they leave while the next tile multiplies.
template <GemmConfig C>
__device__ __forceinline__ void StoreByCopy(const GemmLaunch& launch, const Epilogue<C>& out,
                                            const float (&result)[C.result_regs()]) {
  static_assert(C.cols % kStoreCols == 0);
  constexpr int kAcross = C.cols / kStoreCols;
  constexpr int kBoxes = C.row_subs() * kAcross;
  constexpr int kBoxBytes = kStoreRows * kStoreCols * 2;
  const uint32_t boxes = out.tile_staging + (out.group * 4 + out.warp) * kBoxes * kBoxBytes;
  ptx::TensorStoreWaitRead();  // of the tile before
  __syncwarp();
  // Lane l gives row l % 16 of one chunk of 8 columns or, from lane 16 on, of the next.
  const uint32_t row =
      boxes + out.lane % 16 * (kStoreCols * 2) + ((out.lane / 16 ^ out.lane % 8) << 4);
#pragma unroll
  for (int pair = 0; pair < kBoxes * kStoreCols / 16; ++pair) {
    const float4 left = ChunkOf<C>(result, 2 * pair);
    const float4 right = ChunkOf<C>(result, 2 * pair + 1);
    ptx::StMatrix4((row ^ pair % 4 << 5) + pair / 4 * kBoxBytes,
                   Pack2(left.x, left.y, out.args.out), Pack2(left.z, left.w, out.args.out),
                   Pack2(right.x, right.y, out.args.out), Pack2(right.z, right.w, out.args.out));
  }
  ptx::FenceProxyAsync();
  __syncwarp();
  if (ptx::ElectOne()) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ptx::TensorStore(&launch.store_map, boxes + box * kBoxBytes,
                       out.tile.col0 + box % kAcross * kStoreCols,
                       out.SubRow(box / kAcross) + out.warp * kStoreRows, 0, out.tile.batch);
    }
    ptx::TensorStoreCommit();
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
#pragma unroll
  for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
    for (int first = 0; first < Out::kChunks; first += Out::kStep) {
      const int last = min(first + Out::kStep, Out::kChunks);
      out.Sync();
#pragma unroll
      for (int chunk = first; chunk < last; ++chunk) {
        out.Stage(chunk, first, ChunkOf<C>(result, sub * Out::kChunks + chunk));
      }
      out.Sync();
      out.CopyOut(sub, first, last);
    }
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_STORE_CUH_
