// The producer warp: fills the ring, one k block a stage.

#pragma once

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/l2_policy.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/along_rows/sm90_along_rows.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_scales.cuh"
#include "kernels/cuda/sm90/finishing/sm90_ring_addend.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Arrivals that fill a stage: lane 0's expect_tx, and one for each of B's scales, which come by
// cp.async because a row of them need not be aligned for the copy engine.
template <GemmConfig C>
inline constexpr int kBScales = C.scales_blocks() ? C.b_scale_count() * C.k_blocks : 0;
template <GemmConfig C>
inline constexpr int kFullArrivals = 1 + kBScales<C>;

// Row side, column side and A's scales of the k blocks from `block` on, by one thread. The maps
// have the dimensions [batch, k blocks, rows, 128], or [batch, 1, rows, k] for one k block a stage,
// where the end of k may fall into a block; k in bytes. Of an operand along its rows it is [batch,
// 1, k, rows], of FP32 [batch, parts, rows, k]. `kAlone`: all of it for this CTA, and for no other.
template <GemmConfig C, bool kAlone = false>
__device__ __forceinline__ void LoadStage(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                          const ClusterPlace<C>& place, const Tile& tile, int stage,
                                          int block) {
  constexpr uint64_t kAPolicy = C.skinny() ? ptx::kEvictLast : ptx::kEvictNormal;
  const uint64_t b_policy =
      C.guides_l2() && launch.streams_b ? ptx::kEvictFirst : ptx::kEvictNormal;
  const uint64_t row_policy = C.skinny() ? b_policy : kAPolicy;
  const uint64_t col_policy = C.skinny() ? kAPolicy : b_policy;
  const uint32_t full = smem.Full(stage);
  const int batch_b = launch.one_b ? 0 : tile.batch;
  const int row_batch = C.skinny() ? batch_b : tile.batch;
  const int col_batch = C.skinny() ? tile.batch : batch_b;
  const int x = C.k_blocks == 1 ? block / C.products() * kRowBytes : 0;
  int row_z = C.k_blocks == 1 ? 0 : block, col_z = row_z;
  if constexpr (C.products() > 1) {
    const int product = block % C.products();
    row_z = C.skinny() ? PartOfB(product) : PartOfA(product);
    col_z = C.skinny() ? PartOfA(product) : PartOfB(product);
  }

  ptx::MbarrierArriveExpectTx(full, C.stage_bytes() + C.k_blocks * C.a_scale_bytes());
  // A map's box is one CTA's slice of what is shared.
  constexpr int kRows = C.rows / C.share_rows;
  if constexpr (C.rows_along()) {
    constexpr bool kShared = !kAlone && C.share_rows > 1;
    const int row = kShared ? place.col * kRows : 0;
    LoadAlongRows<kShared ? kRows : C.rows, kShared, C.k_blocks, C.row_bytes()>(
        &launch.row_map, full, smem.Rows(stage) + row * kRowBytes, tile.row0 + row,
        block * C.block_k(), row_batch, place.RowPeers(), row_policy);
  } else if constexpr (kAlone || C.share_rows == 1) {
#pragma unroll
    for (int row = 0; row < C.rows; row += kRows) {
      ptx::TensorLoad(&launch.row_map, full, smem.Rows(stage) + row * kRowBytes, x, tile.row0 + row,
                      row_z, row_batch, row_policy);
    }
  } else {
    const int row = place.col * kRows;
    ptx::TensorLoadMulticast(&launch.row_map, full, smem.Rows(stage) + row * kRowBytes, x,
                             tile.row0 + row, row_z, row_batch, place.RowPeers(), row_policy);
  }
  constexpr int kCols = C.cols / C.share_cols;
  if constexpr (C.cols_along()) {
    constexpr bool kShared = !kAlone && C.share_cols > 1;
    const int col = kShared ? place.row * kCols : 0;
    LoadAlongRows<kShared ? kCols : C.cols, kShared, C.k_blocks, C.col_bytes()>(
        &launch.col_map, full, smem.Cols(stage) + col * kRowBytes, tile.col0 + col,
        block * C.block_k(), col_batch, place.ColPeers(), col_policy);
  } else if constexpr (kAlone || C.share_cols == 1) {
#pragma unroll
    for (int col = 0; col < C.cols; col += kCols) {
      ptx::TensorLoad(&launch.col_map, full, smem.Cols(stage) + col * kRowBytes, x, tile.col0 + col,
                      col_z, col_batch, col_policy);
    }
  } else {
    const int col = place.row * kCols;
    ptx::TensorLoadMulticast(&launch.col_map, full, smem.Cols(stage) + col * kRowBytes, x,
                             tile.col0 + col, col_z, col_batch, place.ColPeers(), col_policy);
  }
  if constexpr (C.scales_blocks()) {
    ptx::TensorLoad(&launch.scale_map, full, smem.AScales(stage),
                    C.skinny() ? tile.col0 : tile.row0, 0, block, tile.batch, ptx::kEvictLast);
  }
}

// B's scales of the k blocks from `block` on, a lane for each. Every lane's, as a tile begins.
template <GemmConfig C>
struct BScaleLoads {
  const float* row;  // this lane's row of scales

  __device__ BScaleLoads(const GemmArgs& args, const Tile& tile, int lane) {
    constexpr int kRun = C.b_scale_run();
    const int n = ((C.skinny() ? tile.row0 : tile.col0) / kRun + lane % C.b_scale_count()) * kRun;
    const int scale_row = min(n, static_cast<int>(args.n) - 1) / kBlockK;
    row = args.b_scales + tile.batch * args.b_scales_batch + scale_row * args.b_scales_ld;
  }
  __device__ __forceinline__ void Load(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                       int lane, int stage, int block) const {
    if (kBScales<C> == 0 || lane >= kBScales<C>) return;
    // Behind the last block values and A's scales are zeros; any of B's scales will do.
    const int b_block = min(block + lane / C.b_scale_count(), launch.k_blocks - 1);
    ptx::CpAsync4(smem.BScales(stage) + lane * 4, row + b_block);
    ptx::CpAsyncMbarrierArrive(smem.Full(stage));
  }
};

// How many stages Start asks for. Not the ring full: what comes first would come later for it.
constexpr int kStagesAtStart = 2;
__device__ __forceinline__ int StagesAtStart(const KRange& range) {
  return min(kStagesAtStart, range.end - range.begin);
}

// The ring's barriers and its first stages, by one lane of the producer warp. This stands in front
// of everything else in the kernel's code: cold, instructions come line by line, and what follows
// has time to come while the first copies are on their way. CTAs that share what they load begin on
// their own: the others' barriers are not there yet.
template <GemmConfig C>
__device__ __forceinline__ void Start(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                      const ClusterPlace<C>& place, int cluster) {
  if (!ptx::ElectOne()) return;
  ptx::PrefetchTensorMap(&launch.row_map);
  ptx::PrefetchTensorMap(&launch.col_map);
  if constexpr (C.scales_blocks()) ptx::PrefetchTensorMap(&launch.scale_map);
#pragma unroll
  for (int stage = 0; stage < C.stages; ++stage) {
    ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
  }
  ptx::FenceMbarrierInit();
  ptx::GridDependencyWait();
  const Tile tile = TileAt<C>(launch.tiles, cluster, place);
  const KRange range = KRange::Of(launch.split, place.k_part);
  const bool spare = C.takes_spares() && cluster >= launch.tiles.count;
  const int stages = spare ? 0 : StagesAtStart(range);
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    LoadStage<C, true>(launch, smem, place, tile, stage, (range.begin + stage) * C.k_blocks);
  }
#pragma unroll
  for (int stage = 0; stage < C.stages; ++stage) {
    ptx::MbarrierInit(smem.Empty(stage),
                      C.stage_readers() * kReleasingLanes * ClusterPlace<C>::kWriters);
  }
  ptx::MbarrierInit(smem.Inbox(), 1);
  ptx::MbarrierInit(smem.Outbox(), launch.split.parts);
  ptx::FenceMbarrierInit();
}

// B's scales of the stages that Start asked for, or those of the first tile's results, by the whole
// warp.
template <GemmConfig C>
__device__ __forceinline__ void StartScales(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                            const ClusterPlace<C>& place, int cluster, int lane) {
  if constexpr (!C.scales_blocks() && !C.scales_results()) return;
  if (C.takes_spares() && cluster >= launch.tiles.count) return;
  ptx::GridDependencyWait();
  if constexpr (C.scales_results()) {
    return PrefetchResultScales<C>(launch.args, TileAt<C>(launch.tiles, cluster, place), lane);
  }
  const KRange range = KRange::Of(launch.split, place.k_part);
  const BScaleLoads<C> b_scales(launch.args, TileAt<C>(launch.tiles, cluster, place), lane);
  // Not a loop: beside one, ptxas keeps the descriptors of 128 x 64 out of uniform registers.
  static_assert(kStagesAtStart == 2);
  b_scales.Load(launch, smem, lane, 0, range.begin * C.k_blocks);
  if (StagesAtStart(range) > 1) {
    b_scales.Load(launch, smem, lane, 1, (range.begin + 1) * C.k_blocks);
  }
}

// All other stages; the place in the ring behind them. `kAdds`: C may come by the ring, too.
template <GemmConfig C, bool kAdds = false>
__device__ __forceinline__ RingPosition<C.stages> Produce(const GemmLaunch& launch,
                                                          const SmemLayout<C>& smem,
                                                          const ClusterPlace<C>& place, int cluster,
                                                          int lane) {
  const KRange range = KRange::Of(launch.split, place.k_part);
  const int started = StagesAtStart(range);
  RingPosition<C.stages> at = {.stage = started};
  if (started == C.stages) at = {.stage = 0, .parity = 1};
  int begin = range.begin + started;
  for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
    const Tile tile = TileAt<C>(launch.tiles, index, place);
    const BScaleLoads<C> b_scales(launch.args, tile, lane);
#pragma unroll 1
    for (int step = begin; step < range.end; ++step) {
      const int block = step * C.k_blocks;
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) LoadStage<C>(launch, smem, place, tile, at.stage, block);
      b_scales.Load(launch, smem, lane, at.stage, block);
      __syncwarp();
      at.Advance();
    }
    if constexpr (kAdds) LoadAddend<C>(launch, smem, tile, b_scales, lane, at);
    begin = range.begin;
  }
  return at;
}

}  // namespace gemmd::kernels::cuda
