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

// The k blocks from `block` on, by one thread, of the row side, the column side, or of one by its
// name. The maps have the dimensions [batch, k blocks, rows, 128], or [batch, 1, rows, k] for one
// k block a stage, where the end of k may fall into a block.
template <GemmConfig C>
struct StageLoader {
  // Weights pass once through a skinny kernel; what is small is read by every CTA.
  static constexpr uint64_t kRowPolicy = C.skinny() ? ptx::kEvictFirst : ptx::kEvictNormal;
  static constexpr uint64_t kColPolicy = C.skinny() ? ptx::kEvictLast : ptx::kEvictNormal;

  const GemmLaunch& launch;
  const SmemLayout<C>& smem;
  const ClusterPlace<C>& place;
  const Tile& tile;

  __device__ __forceinline__ int BatchOfB() const {
    return launch.args.b_batch == 0 ? 0 : tile.batch;
  }
  static __device__ __forceinline__ int X(int block) {
    return C.k_blocks == 1 ? block * kBlockK : 0;
  }
  static __device__ __forceinline__ int Z(int block) { return C.k_blocks == 1 ? 0 : block; }

  __device__ __forceinline__ void Expect(int stage) const {
    ptx::MbarrierArriveExpectTx(smem.Full(stage), C.stage_bytes() + C.k_blocks * C.a_scale_bytes());
  }
  __device__ __forceinline__ void Rows(int stage, int block) const {
    const int batch = C.skinny() ? BatchOfB() : tile.batch;
    if constexpr (C.share_rows == 1) {
      ptx::TensorLoad(&launch.row_map, smem.Full(stage), smem.Rows(stage), X(block), tile.row0,
                      Z(block), batch, kRowPolicy);
    } else {
      constexpr int kSlice = C.rows / C.share_rows;
      ptx::TensorLoadMulticast(
          &launch.row_map, smem.Full(stage), smem.Rows(stage) + place.col * kSlice * kBlockK,
          X(block), tile.row0 + place.col * kSlice, Z(block), batch, place.RowPeers(), kRowPolicy);
    }
  }
  __device__ __forceinline__ void Cols(int stage, int block) const {
    const int batch = C.skinny() ? tile.batch : BatchOfB();
    if constexpr (C.share_cols == 1) {
      ptx::TensorLoad(&launch.col_map, smem.Full(stage), smem.Cols(stage), X(block), tile.col0,
                      Z(block), batch, kColPolicy);
    } else {
      constexpr int kSlice = C.cols / C.share_cols;
      ptx::TensorLoadMulticast(
          &launch.col_map, smem.Full(stage), smem.Cols(stage) + place.row * kSlice * kBlockK,
          X(block), tile.col0 + place.row * kSlice, Z(block), batch, place.ColPeers(), kColPolicy);
    }
  }
  __device__ __forceinline__ void AScales(int stage, int block) const {
    ptx::TensorLoad(&launch.scale_map, smem.Full(stage), smem.AScales(stage),
                    C.skinny() ? tile.col0 : tile.row0, 0, block, tile.batch, ptx::kEvictLast);
  }
  __device__ __forceinline__ void Weights(int stage, int block) const {
    C.skinny() ? Rows(stage, block) : Cols(stage, block);
  }
  __device__ __forceinline__ void Activations(int stage, int block) const {
    C.skinny() ? Cols(stage, block) : Rows(stage, block);
    AScales(stage, block);
  }
  __device__ __forceinline__ void All(int stage, int block) const {
    Expect(stage);
    Rows(stage, block);
    Cols(stage, block);
    AScales(stage, block);
  }
};

// B's scales of those k blocks, by the whole warp; `b_scales` is this lane's of k block 0.
template <GemmConfig C>
__device__ __forceinline__ void LoadBScales(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                            const float* b_scales, int stage, int block, int lane) {
  if (lane < kBScales<C>) {
    // Behind the last block values and A's scales are zeros; any of B's scales will do.
    const int b_block = min(block + lane / C.b_scale_count(), launch.k_blocks - 1);
    ptx::CpAsync4(smem.BScales(stage) + lane * 4, b_scales + b_block);
    ptx::CpAsyncMbarrierArrive(smem.Full(stage));
  }
}

// The whole ring of weights, before the kernel in front has ended; then, once it has, what belongs
// to them. Returns the first step that is left.
template <GemmConfig C>
__device__ __forceinline__ int FillEarly(const GemmLaunch& launch, const StageLoader<C>& load,
                                         const float* b_scales, KRange range, int lane,
                                         RingPosition<C.stages>& at) {
  const int ahead = min(C.stages, range.end - range.begin);
#pragma unroll 1
  for (int i = 0; i < ahead; ++i) {
    const int block = (range.begin + i) * C.k_blocks;
    if (ptx::ElectOne()) {
      load.Expect(i);
      load.Weights(i, block);
    }
    LoadBScales<C>(launch, load.smem, b_scales, i, block, lane);
    __syncwarp();
  }
  ptx::GridDependencyWait();
#pragma unroll 1
  for (int i = 0; i < ahead; ++i) {
    if (ptx::ElectOne()) load.Activations(at.stage, (range.begin + i) * C.k_blocks);
    __syncwarp();
    at.Advance();
  }
  return range.begin + ahead;
}

// With kEarly no kernel before this one, as far as it may still be running, writes B or its scales.
template <GemmConfig C, bool kEarly>
__device__ __forceinline__ void Produce(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster, int lane) {
  const KRange range = KRange::Of(launch.split, place.k_part);
  const Fp8GemmArgs& args = launch.args;
  RingPosition<C.stages> at;
  if constexpr (!kEarly) ptx::GridDependencyWait();
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    const StageLoader<C> load{launch, smem, place, tile};
    const int n = (C.skinny() ? tile.row0 : tile.col0) + lane % C.b_scale_count() * C.b_scale_run();
    const int row = min(n, static_cast<int>(args.n) - 1) / 128;
    const float* b_scales =
        args.b_scales + tile.batch * args.b_scales_batch + row * args.b_scales_ld;
    int step = range.begin;
    if constexpr (kEarly) {
      if (index == cluster) step = FillEarly<C>(launch, load, b_scales, range, lane, at);
    }
#pragma unroll 1
    for (; step < range.end; ++step) {
      const int block = step * C.k_blocks;
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) load.All(at.stage, block);
      LoadBScales<C>(launch, smem, b_scales, at.stage, block, lane);
      __syncwarp();
      at.Advance();
    }
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_PRODUCER_CUH_
