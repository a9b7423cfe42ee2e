// The producer warp: fills the ring, one k block a stage.

#ifndef GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_
#define GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Arrivals that fill a stage: lane 0's expect_tx, and one for each of B's scales, which come by
// cp.async because a row of them need not be aligned for the copy engine.
template <GemmConfig C>
inline constexpr int kBScales = C.b_scale_count() * C.k_blocks;
template <GemmConfig C>
inline constexpr int kFullArrivals = 1 + kBScales<C>;

// Row side, column side and A's scales of the k blocks from `block` on, by one thread. The maps
// have the dimensions [batch, k blocks, rows, 128], or [batch, 1, rows, k] for one k block a stage,
// where the end of k may fall into a block.
template <GemmConfig C>
__device__ __forceinline__ void LoadStage(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                          const ClusterPlace<C>& place, const Tile& tile, int stage,
                                          int block) {
  // Weights pass once through a skinny kernel; what is small is read by every CTA.
  constexpr uint64_t kRowPolicy = C.skinny() ? ptx::kEvictFirst : ptx::kEvictNormal;
  constexpr uint64_t kColPolicy = C.skinny() ? ptx::kEvictLast : ptx::kEvictNormal;
  const uint32_t full = smem.Full(stage);
  const int batch_b = launch.args.b_batch == 0 ? 0 : tile.batch;
  const int row_batch = C.skinny() ? batch_b : tile.batch;
  const int col_batch = C.skinny() ? tile.batch : batch_b;
  const int x = C.k_blocks == 1 ? block * kBlockK : 0;
  const int z = C.k_blocks == 1 ? 0 : block;

  ptx::MbarrierArriveExpectTx(full, C.stage_bytes() + C.k_blocks * C.a_scale_bytes());
  if constexpr (C.share_rows == 1) {
    ptx::TensorLoad(&launch.row_map, full, smem.Rows(stage), x, tile.row0, z, row_batch,
                    kRowPolicy);
  } else {
    constexpr int kSlice = C.rows / C.share_rows;
    ptx::TensorLoadMulticast(&launch.row_map, full, smem.Rows(stage) + place.col * kSlice * kBlockK,
                             x, tile.row0 + place.col * kSlice, z, row_batch, place.RowPeers(),
                             kRowPolicy);
  }
  if constexpr (C.share_cols == 1) {
    ptx::TensorLoad(&launch.col_map, full, smem.Cols(stage), x, tile.col0, z, col_batch,
                    kColPolicy);
  } else {
    constexpr int kSlice = C.cols / C.share_cols;
    ptx::TensorLoadMulticast(&launch.col_map, full, smem.Cols(stage) + place.row * kSlice * kBlockK,
                             x, tile.col0 + place.row * kSlice, z, col_batch, place.ColPeers(),
                             kColPolicy);
  }
  ptx::TensorLoad(&launch.scale_map, full, smem.AScales(stage), C.skinny() ? tile.col0 : tile.row0,
                  0, block, tile.batch, ptx::kEvictLast);
}

template <GemmConfig C>
__device__ __forceinline__ void Produce(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster, int lane) {
  const KRange range = KRange::Of(launch.split, place.k_part);
  const Fp8GemmArgs& args = launch.args;
  RingPosition<C.stages> at;
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    const int n = (C.skinny() ? tile.row0 : tile.col0) + lane % C.b_scale_count() * C.b_scale_run();
    const int row = min(n, static_cast<int>(args.n) - 1) / 128;
    const float* b_scales =
        args.b_scales + tile.batch * args.b_scales_batch + row * args.b_scales_ld;
#pragma unroll 1
    for (int step = range.begin; step < range.end; ++step) {
      const int block = step * C.k_blocks;
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) LoadStage<C>(launch, smem, place, tile, at.stage, block);
      if (lane < kBScales<C>) {
        // Behind the last block values and A's scales are zeros; any of B's scales will do.
        const int b_block = min(block + lane / C.b_scale_count(), launch.k_blocks - 1);
        ptx::CpAsync4(smem.BScales(at.stage) + lane * 4, b_scales + b_block);
        ptx::CpAsyncMbarrierArrive(smem.Full(at.stage));
      }
      __syncwarp();
      at.Advance();
    }
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_
