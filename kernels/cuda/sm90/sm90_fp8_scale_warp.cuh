// The scale warp of a wide skinny tile: makes each stage's scales for the math warps, which have a
// pair of columns every 8 results. Loaded and multiplied by the math warps themselves, 136 columns'
// scales take as long as their FFMAs.

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_FP8_SCALE_WARP_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_FP8_SCALE_WARP_CUH_

#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Where column `col`'s scale stands, in floats: what a math thread reads of two chunks of 8 columns
// lies in 16 bytes. A permutation within each 32.
__device__ __forceinline__ int ScalePlace(int col) {
  return col / 16 * 16 + col % 8 / 2 * 4 + col / 8 % 2 * 2 + col % 2;
}

// Puts a_scale * b_scale in the place of A's scales, in ScalePlace's order, and arrives on the
// stage's Scaled barrier, for which the math warps wait.
template <GemmConfig C>
__device__ __forceinline__ void MakeScales(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                           const ClusterPlace<C>& place, int cluster, int lane) {
  constexpr int kTurns = (C.cols + 31) / 32;
  static_assert(kTurns * 32 * 4 <= C.b_scale_offset(), "the last 32 are permuted whole");
  const KRange range = KRange::Of(launch.split, place.k_part);
  RingPosition<C.stages> at;
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
#pragma unroll 1
    for (int step = range.begin; step < range.end; ++step) {
      ptx::MbarrierWait(smem.Full(at.stage), at.parity);
      const uint32_t scales = smem.AScales(at.stage);
      const float b = ptx::LoadShared(smem.BScales(at.stage));
      float made[kTurns];
#pragma unroll
      for (int i = 0; i < kTurns; ++i) made[i] = ptx::LoadShared(scales + (i * 32 + lane) * 4) * b;
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        ptx::StoreShared(scales + ScalePlace(i * 32 + lane) * 4, made[i]);
      }
      ptx::FenceProxyAsync();  // the copy engine overwrites them
      __syncwarp();
      if (lane == 0) ptx::MbarrierArrive(smem.Scaled(at.stage));
      at.Advance();
    }
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_FP8_SCALE_WARP_CUH_
