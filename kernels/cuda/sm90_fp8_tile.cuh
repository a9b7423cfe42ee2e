// Where a CTA works: its place in the cluster, and the tiles in the order that keeps L2 warm.

#ifndef GEMMD_KERNELS_CUDA_SM90_FP8_TILE_CUH_
#define GEMMD_KERNELS_CUDA_SM90_FP8_TILE_CUH_

#include "kernels/cuda/gemm_family.h"
#include "kernels/cuda/ptx/cluster.cuh"

namespace gemmd::kernels::cuda {

// CTA rank in the cluster = (k_part * share_rows + col) * share_cols + row. CTAs of one k_part and
// one col share the column side; those of one k_part and one row share the row side.
template <GemmConfig C>
struct ClusterPlace {
  int rank;
  int row;     // 0 .. share_cols - 1
  int col;     // 0 .. share_rows - 1
  int k_part;  // 0 .. split - 1

  __device__ static ClusterPlace Here() {
    ClusterPlace p;
    p.rank = static_cast<int>(ptx::ClusterRank());
    p.row = p.rank % C.share_cols;
    p.col = p.rank / C.share_cols % C.share_rows;
    p.k_part = p.rank / C.multicast();
    return p;
  }
  __device__ int RankOf(int r, int c) const {
    return (k_part * C.share_rows + c) * C.share_cols + r;
  }
  // The CTAs that need the same row-side tile, as a mask over ranks.
  __device__ uint16_t RowPeers() const {
    uint32_t mask = 0;
#pragma unroll
    for (int c = 0; c < C.share_rows; ++c) mask |= 1u << RankOf(row, c);
    return static_cast<uint16_t>(mask);
  }
  __device__ uint16_t ColPeers() const {
    uint32_t mask = 0;
#pragma unroll
    for (int r = 0; r < C.share_cols; ++r) mask |= 1u << RankOf(r, col);
    return static_cast<uint16_t>(mask);
  }
  // CTAs that write into this one's ring, itself included: they wait for its readers.
  static constexpr int kWriters = C.share_rows + C.share_cols - 1;
  __device__ int Writer(int i) const {
    if (i < C.share_rows) return RankOf(row, i);
    const int r = i - C.share_rows;
    return RankOf(r < row ? r : r + 1, col);
  }
};

struct Tile {
  int row0;  // first row of the row side
  int col0;  // first row of the column side
  int batch;
};

// Clusters take cluster-tiles in bands of `raster` along the rows, so that the CTAs at work at one
// time cover a compact part of D and share what they read.
template <GemmConfig C>
struct TileOrder {
  int row_tiles;  // cluster-tiles along the rows
  int col_tiles;
  int raster;
  int count;

  __device__ static TileOrder Of(const GemmLaunch& launch) {
    const int rows = static_cast<int>(C.skinny() ? launch.args.n : launch.args.m);
    const int cols = static_cast<int>(C.skinny() ? launch.args.m : launch.args.n);
    TileOrder order;
    constexpr int kRows = C.rows * C.share_cols;
    constexpr int kCols = C.cols * C.share_rows;
    order.row_tiles = (rows + kRows - 1) / kRows;
    order.col_tiles = (cols + kCols - 1) / kCols;
    order.raster = launch.raster;
    order.count = order.row_tiles * order.col_tiles * static_cast<int>(launch.args.batch);
    return order;
  }
  __device__ Tile At(int index, const ClusterPlace<C>& place) const {
    const int per_batch = row_tiles * col_tiles;
    Tile tile;
    tile.batch = index / per_batch;
    const int inside = index - tile.batch * per_batch;
    const int per_band = raster * col_tiles;
    const int band = inside / per_band;
    const int band_row = band * raster;
    const int band_rows = min(raster, row_tiles - band_row);
    const int in_band = inside - band * per_band;
    const int col = in_band / band_rows;
    const int row = band_row + in_band - col * band_rows;
    tile.row0 = (row * C.share_cols + place.row) * C.rows;
    tile.col0 = (col * C.share_rows + place.col) * C.cols;
    return tile;
  }
};

// This CTA's part of the k blocks.
struct KRange {
  int begin;
  int end;
  __device__ static KRange Of(const GemmLaunch& launch, int k_part) {
    const int blocks = static_cast<int>((launch.args.k + kBlockK - 1) / kBlockK);
    return {blocks * k_part / launch.split, blocks * (k_part + 1) / launch.split};
  }
};

// Position in the ring of stages; the parity flips with each round.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Shared memory, all offsets from a base aligned to 1024 bytes.
template <GemmConfig C>
struct SmemLayout {
  static constexpr uint32_t kScales = C.stages * C.stage_bytes();
  static constexpr uint32_t kStore = kScales + C.stages * C.scale_bytes();
  static constexpr uint32_t kBarriers = kStore + (C.store_bytes() + 127) / 128 * 128;

  uint32_t base;
  __device__ uint32_t Rows(int stage) const { return base + stage * C.stage_bytes(); }
  __device__ uint32_t Cols(int stage) const { return Rows(stage) + C.row_bytes(); }
  __device__ uint32_t AScales(int stage) const { return base + kScales + stage * C.scale_bytes(); }
  __device__ uint32_t BScales(int stage) const { return AScales(stage) + C.a_scale_bytes(); }
  __device__ uint32_t Full(int stage) const { return base + kBarriers + stage * 16; }
  __device__ uint32_t Empty(int stage) const { return base + kBarriers + stage * 16 + 8; }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_TILE_CUH_
