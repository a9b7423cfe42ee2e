// The walk over the tiles of groups in BF16 and FP16: as sm90_fp8_group_walk.cuh's, a table in each
// CTA's shared memory, of two kinds of tiles that are numbered apart.

#pragma once

#include "kernels/cuda/sm90/grouped/sm90_fp8_group_walk.cuh"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"

namespace gemmd::kernels::cuda {

// Where a cluster is: rows of a group, and which of its tiles along n.
struct GroupStop {
  GroupTile rows;
  int n;
};

struct DirectWalk {
  // Rows of A in a tile, at most: a group with more than a thin tile's has wide ones, of as many
  // rows each.
  static constexpr int kThinRows = 64, kWideRows = 256;
  // Wide tiles of a group that go through the weights together, for L2.
  static constexpr int kBand = 8;
  // By group: its first row, its rows, and tiles of either kind of those in front; behind them the
  // tiles of all, the warps' sums of either kind, their first faults, and from which wide tile on
  // they are cut into how many parts.
  static constexpr int kMostWarps = 8;
  static constexpr int kFirst = 0, kRows = kMostGroups, kBefore = 2 * kMostGroups,
                       kTotals = (2 + kTileLists) * kMostGroups, kSums = kTotals + kTileLists,
                       kFaults = kSums + kTileLists * kMostWarps, kCut = kFaults + kMostWarps;
  static constexpr int kBytes = (kCut + 2) * 4;
  // Tiles of the last round, where it has few, are cut into so many parts at most: a narrower one
  // multiplies as many columns.
  static constexpr int kMostParts = 3;

  const DirectGroupedLaunch& launch;
  int* table;

  static __device__ __forceinline__ int WideOf(int rows) {
    return rows > kThinRows ? (rows + kWideRows - 1) / kWideRows : 0;
  }
  __device__ __forceinline__ int TilesOf(int kind, int rows) const {
    return launch.n_tiles *
           (kind == kWideTile ? WideOf(rows) : static_cast<int>(rows > 0 && rows <= kThinRows));
  }

  // By the math warps, for so many clusters.
  template <int kWarps>
  __device__ __forceinline__ void Make(int warp, int lane, int clusters) const {
    constexpr int kEach = kMostGroups / (kWarps * 32);
    static_assert(kEach * kWarps * 32 == kMostGroups && kWarps <= kMostWarps);
    const int first = (warp * 32 + lane) * kEach;
    int sums[kTileLists] = {};
    int fault = INT_MAX, fault_value = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      GroupRows rows;
      if (first + i < launch.source.groups) rows = RowsOf(launch.source, first + i);
      table[kFirst + first + i] = rows.first;
      table[kRows + first + i] = rows.count;
#pragma unroll
      for (int kind = 0; kind < kTileLists; ++kind) sums[kind] += TilesOf(kind, rows.count);
      if (rows.fault_index < fault) {
        fault = rows.fault_index;
        fault_value = rows.fault_value;
      }
    }
    int before[kTileLists];
#pragma unroll
    for (int kind = 0; kind < kTileLists; ++kind) {
      int sum = sums[kind];
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
      }
      before[kind] = sum - sums[kind];
      if (lane == 31) table[kSums + kind * kMostWarps + warp] = sum;
    }
    const int warp_fault = __reduce_min_sync(0xffffffffu, fault);
    if (lane == 0) table[kFaults + warp] = warp_fault;
    ptx::NamedBarrier(kStagingBarrier, kWarps * 32);  // every warp's are there
    int first_fault = INT_MAX;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) first_fault = min(first_fault, table[kFaults + i]);
#pragma unroll
    for (int kind = 0; kind < kTileLists; ++kind) {
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        if (i < warp) before[kind] += table[kSums + kind * kMostWarps + i];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        table[kBefore + kind * kMostGroups + first + i] = before[kind];
        before[kind] += TilesOf(kind, table[kRows + first + i]);
      }
    }
    if (warp == kWarps - 1 && lane == 31) {
      const int wide = before[kWideTile], rest = wide % clusters;
      const bool last = before[kThinTile] == 0 && rest > 0;
      const int parts = last ? min(kMostParts, clusters / rest) : 1;
      table[kCut] = wide - rest;
      table[kCut + 1] = parts;
      table[kTotals + kThinTile] = before[kThinTile];
      table[kTotals + kWideTile] = wide - rest + rest * parts;
    }
    if (blockIdx.x == 0 && first_fault != INT_MAX && fault == first_fault) {
      const auto kind = launch.source.items ? DataFaultKind::kCount : DataFaultKind::kOffset;
      *reinterpret_cast<int4*>(launch.source.fault) =
          make_int4(static_cast<int>(kind), fault, fault_value, launch.source.rows);
    }
  }

  __device__ __forceinline__ int Total(int kind) const { return table[kTotals + kind]; }

  __device__ __forceinline__ GroupStop At(int kind, int index) const {
    int part = 0, parts = 1;
    if (kind == kWideTile && index >= table[kCut]) {
      const int cut = table[kCut];
      parts = table[kCut + 1];
      const int tile = (index - cut) / parts;
      part = index - cut - tile * parts;
      index = cut + tile;
    }
    const int* const before = table + kBefore + kind * kMostGroups;
    int low = 0, high = launch.source.groups - 1;  // the last group with so many in front of it
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (before[middle] <= index) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int first = table[kFirst + low], rows = table[kRows + low];
    const int item = launch.source.items ? low : 0, inside = index - before[low];
    if (kind == kThinTile) return {{low, item, first, first + rows}, inside};
    const int tiles = WideOf(rows), band = inside / (kBand * launch.n_tiles);
    const int in_band = inside - band * kBand * launch.n_tiles;
    const int of_n = min(kBand, tiles - band * kBand), n = in_band / of_n;
    const int each = (rows + tiles - 1) / tiles;
    const int row0 = (band * kBand + in_band - n * of_n) * each, end = min(rows, row0 + each);
    const int of_part = (end - row0 + parts - 1) / parts, begin = row0 + part * of_part;
    return {{low, item, first + begin, first + min(end, begin + of_part)}, n};
  }
};

}  // namespace gemmd::kernels::cuda
