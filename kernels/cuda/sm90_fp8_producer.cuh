// The producer warp: fills the ring, one k block a stage.

#ifndef GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_
#define GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Arrivals that fill a stage: lane 0's expect_tx, and one for each of B's scales, which come by
// cp.async because a row of them need not be aligned for the copy engine.
template <GemmConfig C>
inline constexpr int kFullArrivals = 1 + C.b_scale_rows();

// Row side, column side and A's scales of k block `block`, by one thread.
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
  const int x = block * kBlockK;

  ptx::MbarrierArriveExpectTx(full, C.row_bytes() + C.col_bytes() + C.block_m() * 4);
  if constexpr (C.share_rows == 1) {
    ptx::TensorLoad3d(&launch.row_map, full, smem.Rows(stage), x, tile.row0, row_batch, kRowPolicy);
  } else {
    constexpr int kSlice = C.rows / C.share_rows;
    ptx::TensorLoad3dMulticast(
        &launch.row_map, full, smem.Rows(stage) + place.col * kSlice * kBlockK, x,
        tile.row0 + place.col * kSlice, row_batch, place.RowPeers(), kRowPolicy);
  }
  if constexpr (C.share_cols == 1) {
    ptx::TensorLoad3d(&launch.col_map, full, smem.Cols(stage), x, tile.col0, col_batch, kColPolicy);
  } else {
    constexpr int kSlice = C.cols / C.share_cols;
    ptx::TensorLoad3dMulticast(
        &launch.col_map, full, smem.Cols(stage) + place.row * kSlice * kBlockK, x,
        tile.col0 + place.row * kSlice, col_batch, place.ColPeers(), kColPolicy);
  }
  ptx::TensorLoad3d(&launch.scale_map, full, smem.AScales(stage),
                    C.skinny() ? tile.col0 : tile.row0, block, tile.batch, ptx::kEvictLast);
}

template <GemmConfig C>
__device__ __forceinline__ void Produce(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster, int lane) {
  const TileOrder<C> order = TileOrder<C>::Of(launch);
  const KRange range = KRange::Of(launch, place.k_part);
  const Fp8GemmArgs& args = launch.args;
  const int last_scale_row = static_cast<int>((args.n - 1) / 128);
  RingPosition<C.stages> at;
  for (int index = cluster; index < order.count; index += launch.clusters) {
    const Tile tile = order.At(index, place);
    const int first = (C.skinny() ? tile.row0 : tile.col0) / 128;
    const float* b_scales = args.b_scales + tile.batch * args.b_scales_batch +
                            min(first + lane, last_scale_row) * args.b_scales_ld;
    for (int block = range.begin; block < range.end; ++block) {
      if constexpr (C.multicast() > 1) {
        ptx::MbarrierWaitCluster(smem.Empty(at.stage), at.parity ^ 1);
      } else {
        ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      }
      if (lane == 0) LoadStage<C>(launch, smem, place, tile, at.stage, block);
      if (lane < C.b_scale_rows()) {
        ptx::CpAsync4(smem.BScales(at.stage) + lane * 4, b_scales + block);
        ptx::CpAsyncMbarrierArrive(smem.Full(at.stage));
      }
      __syncwarp();
      at.Advance();
    }
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_
