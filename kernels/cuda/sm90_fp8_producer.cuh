// The producer warp: fills the ring, one k block a stage.

#ifndef GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_
#define GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
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

// Fills stages of one tile. The maps have the dimensions [batch, k blocks, rows, 128], or
// [batch, 1, rows, k] for one k block a stage, where the end of k may fall into a block.
template <GemmConfig C>
struct StageFill {
  const GemmLaunch& launch;
  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  Tile tile;
  const float* b_scales;  // this lane's, of k block 0

  __device__ StageFill(const GemmLaunch& launch, const SmemLayout<C>& smem,
                       const ClusterPlace<C>& place, const Tile& tile, int lane)
      : launch(launch), smem(smem), place(place), tile(tile) {
    const Fp8GemmArgs& args = launch.args;
    const int n = (C.skinny() ? tile.row0 : tile.col0) + lane % C.b_scale_count() * C.b_scale_run();
    const int row = min(n, static_cast<int>(args.n) - 1) / 128;
    b_scales = args.b_scales + tile.batch * args.b_scales_batch + row * args.b_scales_ld;
  }

  // B's values of the k blocks from `block` on, and what the stage is to be full of. By one thread.
  __device__ __forceinline__ void Weights(int stage, int block) const {
    ptx::MbarrierArriveExpectTx(smem.Full(stage), C.stage_bytes() + C.k_blocks * C.a_scale_bytes());
    C.skinny() ? Rows(stage, block) : Cols(stage, block);
  }
  // B's scales. By the whole warp.
  __device__ __forceinline__ void WeightScales(int stage, int block, int lane) const {
    if (lane < kBScales<C>) {
      // Behind the last block values and A's scales are zeros; any of B's scales will do.
      const int b_block = min(block + lane / C.b_scale_count(), launch.k_blocks - 1);
      ptx::CpAsync4(smem.BScales(stage) + lane * 4, b_scales + b_block);
      ptx::CpAsyncMbarrierArrive(smem.Full(stage));
    }
  }
  // A and its scales. By one thread.
  __device__ __forceinline__ void Activations(int stage, int block) const {
    C.skinny() ? Cols(stage, block) : Rows(stage, block);
    ptx::TensorLoad(&launch.scale_map, smem.Full(stage), smem.AScales(stage),
                    C.skinny() ? tile.col0 : tile.row0, 0, block, tile.batch, ptx::kEvictLast);
  }

 private:
  // Weights pass once through a skinny kernel; what is small is read by every CTA.
  static constexpr uint64_t kRowPolicy = C.skinny() ? ptx::kEvictFirst : ptx::kEvictNormal;
  static constexpr uint64_t kColPolicy = C.skinny() ? ptx::kEvictLast : ptx::kEvictNormal;

  __device__ int BatchOfB() const { return launch.args.b_batch == 0 ? 0 : tile.batch; }
  static __device__ int InRow(int block) { return C.k_blocks == 1 ? block * kBlockK : 0; }
  static __device__ int InMap(int block) { return C.k_blocks == 1 ? 0 : block; }

  __device__ __forceinline__ void Rows(int stage, int block) const {
    const int batch = C.skinny() ? BatchOfB() : tile.batch;
    if constexpr (C.share_rows == 1) {
      ptx::TensorLoad(&launch.row_map, smem.Full(stage), smem.Rows(stage), InRow(block), tile.row0,
                      InMap(block), batch, kRowPolicy);
    } else {
      constexpr int kSlice = C.rows / C.share_rows;
      ptx::TensorLoadMulticast(&launch.row_map, smem.Full(stage),
                               smem.Rows(stage) + place.col * kSlice * kBlockK, InRow(block),
                               tile.row0 + place.col * kSlice, InMap(block), batch,
                               place.RowPeers(), kRowPolicy);
    }
  }
  __device__ __forceinline__ void Cols(int stage, int block) const {
    const int batch = C.skinny() ? tile.batch : BatchOfB();
    if constexpr (C.share_cols == 1) {
      ptx::TensorLoad(&launch.col_map, smem.Full(stage), smem.Cols(stage), InRow(block), tile.col0,
                      InMap(block), batch, kColPolicy);
    } else {
      constexpr int kSlice = C.cols / C.share_cols;
      ptx::TensorLoadMulticast(&launch.col_map, smem.Full(stage),
                               smem.Cols(stage) + place.row * kSlice * kBlockK, InRow(block),
                               tile.col0 + place.row * kSlice, InMap(block), batch,
                               place.ColPeers(), kColPolicy);
    }
  }
};

template <GemmConfig C>
__device__ __forceinline__ void Produce(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster, int lane) {
  const KRange range = KRange::Of(launch.split, place.k_part);
  const int steps = range.end - range.begin;
  RingPosition<C.stages> at;
  // Weights that no kernel before this one writes need not wait for it: the ring is full of them
  // when the activations are there. Rounds below 0 fetch them, by the code of the others: more of
  // it would take a kernel that starts cold longer than they spare.
  int ahead = launch.weights_stand ? min(C.stages, steps) : 0;
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const StageFill<C> fill(launch, smem, place, TileAt<C>(launch.tiles, index, place), lane);
#pragma unroll 1
    for (int i = -ahead; i < steps; ++i) {
      if (i == 0 && index == cluster) {
        ptx::GridDependencyWait();
        at = {};
      }
      const bool weights = i < 0 || i >= ahead;
      const int block = (range.begin + (i < 0 ? i + ahead : i)) * C.k_blocks;
      if (weights) ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) {
        if (weights) fill.Weights(at.stage, block);
        if (i >= 0) fill.Activations(at.stage, block);
      }
      if (weights) fill.WeightScales(at.stage, block, lane);
      __syncwarp();
      at.Advance();
    }
    ahead = 0;
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_
