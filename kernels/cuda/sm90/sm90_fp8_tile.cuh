// Where a CTA works: its place in the cluster, and the tiles in the order that keeps L2 warm.

#pragma once

#include "kernels/cuda/ptx/cluster.cuh"
#include "kernels/cuda/sm90/gemm_family.h"

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

__device__ __forceinline__ int Divide(int x, const Divisor& by) {
  return static_cast<int>(__umulhi(2 * x, by.magic) >> by.shift);
}

// Clusters take cluster-tiles in bands of `raster` along the rows, so that the CTAs at work at one
// time cover a compact part of D and share what they read.
template <GemmConfig C>
__device__ __forceinline__ Tile TileAt(const TileGrid& grid, int index,
                                       const ClusterPlace<C>& place) {
  Tile tile;
  tile.batch = Divide(index, grid.per_batch);
  const int inside = index - tile.batch * static_cast<int>(grid.per_batch.value);
  const int band = Divide(inside, grid.per_band);
  const int in_band = inside - band * static_cast<int>(grid.per_band.value);
  const int band_row = band * grid.raster;
  const bool last = band_row + grid.raster > grid.row_tiles;
  const Divisor& rows_of_band = last ? grid.last_rows : grid.raster_rows;
  const int col = Divide(in_band, rows_of_band);
  const int rows = static_cast<int>(rows_of_band.value);
  tile.row0 = ((band_row + in_band - col * rows) * C.share_cols + place.row) * C.rows;
  tile.col0 = (col * C.share_rows + place.col) * C.cols;
  return tile;
}

// What compute-sanitizer's racecheck takes in another way than the hardware does; with
// GEMMD_RACECHECK it has nothing to report.
#ifdef GEMMD_RACECHECK
// It does not take a stage's release by one lane, behind a __syncwarp, for the other lanes', and
// reports their reads of B's scales. So every lane releases.
inline constexpr int kReleasingLanes = 32;
// It holds all who wait at a cluster's barrier until every warp of the CTA waits there. So the
// producer warp, which has work to do in between, waits at once.
inline constexpr bool kWaitsForPeersAtOnce = true;
#else
inline constexpr int kReleasingLanes = 1;
inline constexpr bool kWaitsForPeersAtOnce = false;
#endif

// Where a unit of 16 bytes lies in a staging area of 8 rows of 8 units.
__device__ __forceinline__ int SwizzledUnit(int row, int unit) {
  return row * 128 + (unit ^ row) * 16;
}

// Named barriers; 0 is __syncthreads'. Of those with a group's number to add there are three.
enum NamedBarrierId {
  kReadyBarrier = 1,    // the producer warp has made the ring: it arrives, the math warps wait
  kStagingBarrier = 2,  // + group: a math warpgroup's staging area
  kFoldFullBarrier = 5,
  kFoldFreeBarrier = 6,
  kBoxesStagedBarrier = 7,  // + group: a math warpgroup has its boxes ready for its store warp
  kBoxesFreeBarrier = 10,   // + group: they may be overwritten
  kTurnBarrier = 13,        // + group: of two that alternate, the other has issued its tile
  kTableBarrier = 15,       // the math warps have made a walk's table: the producer warp waits
};

// This CTA's part of the stages that k takes.
struct KRange {
  int begin;
  int end;
  __device__ static KRange Of(const KSplit& split, int part) {
    const int begin = part * split.step + min(part, split.extra);
    return {begin, begin + split.step + (part < split.extra ? 1 : 0)};
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
  __device__ void Skip(int stages) {
    const int end = stage + stages;
    parity ^= end / kStages & 1;
    stage = end % kStages;
  }
};

// The same, one of a warpgroup's k blocks after the other.
template <GemmConfig C>
struct BlockPosition : RingPosition<C.stages> {
  int block = 0;  // in the stage
  __device__ bool EndsStage() const {
    return C.blocks_of_group() == 1 || block == C.blocks_of_group() - 1;
  }
  __device__ void Advance() {
    if (EndsStage()) {
      block = 0;
      RingPosition<C.stages>::Advance();
    } else {
      ++block;
    }
  }
};

// Shared memory, all offsets from a base aligned to 1024 bytes.
template <GemmConfig C>
struct SmemLayout {
  static constexpr uint32_t kStore = C.stages * C.stage_bytes();
  static constexpr uint32_t kScales = kStore + (C.store_bytes() + 127) / 128 * 128;
  static constexpr uint32_t kFold = kScales + C.stages * C.scale_bytes();
  static constexpr uint32_t kBarriers = kFold + C.fold_bytes();
  static constexpr uint32_t kResultScales = kBarriers + C.barrier_bytes();

  uint32_t base;
  __device__ uint32_t Rows(int stage) const { return base + stage * C.stage_bytes(); }
  __device__ uint32_t Cols(int stage) const { return Rows(stage) + C.k_blocks * C.row_bytes(); }
  __device__ uint32_t AScales(int stage) const { return base + kScales + stage * C.scale_bytes(); }
  __device__ uint32_t BScales(int stage) const { return AScales(stage) + C.b_scale_offset(); }
  __device__ uint32_t Full(int stage) const { return base + kBarriers + stage * 16; }
  __device__ uint32_t Empty(int stage) const { return base + kBarriers + stage * 16 + 8; }
  // Completes when every part of a split tile has come in.
  __device__ uint32_t Inbox() const { return base + kBarriers + C.stages * 16; }
  // Completes when every part's inbox is free.
  __device__ uint32_t Outbox() const { return Inbox() + 8; }
};

}  // namespace gemmd::kernels::cuda
