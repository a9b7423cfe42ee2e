// The walk over the tiles of groups. Each CTA reads where the groups lie as it starts, into a table
// of its shared memory; tiles are numbered through all groups, and a number leads to its place.

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GROUP_WALK_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GROUP_WALK_CUH_

#include <climits>

#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/launch/grouped.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Rows of one group that a CTA multiplies at a time, by rows of its weights from n0 on.
struct GroupPlace {
  int kind;  // kThinTile, kWideTile, or one of the tall ones behind them
  int item;
  int row0;     // within the item
  int row_end;  // of the group: rows from here on are not stored
  int n0;
  int group;
};

// Where a group's rows are. A fault has the number's index, or INT_MAX if there is none.
struct GroupRows {
  int first = 0;
  int count = 0;
  int fault_index = INT_MAX;
  int fault_value = 0;
};

// Each number by one load: it may change meanwhile.
__device__ __forceinline__ int LoadOnce(const int32_t* numbers, int i) {
  return *const_cast<const volatile int32_t*>(numbers + i);
}

__device__ __forceinline__ GroupRows RowsOf(const GroupSource& from, int group) {
  if (from.index == nullptr) {
    return {.first = from.items ? 0 : from.starts[group], .count = from.sizes[group]};
  }
  const int number = LoadOnce(from.index, group);
  if (from.items) {
    if (number < 0 || number > from.rows) return {.fault_index = group, .fault_value = number};
    return {.count = number};
  }
  const int end = LoadOnce(from.index, group + 1);
  if (number < 0 || number > from.rows) return {.fault_index = group, .fault_value = number};
  if (end < number || end > from.rows) return {.fault_index = group + 1, .fault_value = end};
  return {.first = number, .count = end - number};
}

// `W` and `T`: the wide tile's config, and the thin one's.
template <GemmConfig W, GemmConfig T>
struct GroupWalk {
  static constexpr int kWarps = W.math_threads() / 32;
  static constexpr int kGroupsAThread = kMostGroups / W.math_threads();
  static_assert(kMostGroups % W.math_threads() == 0);
  static_assert(W.block_m() == kWideRows && T.block_m() == kThinRows);
  static constexpr int kThinOfWide = W.block_n() / T.block_n();  // thin tiles with a wide one's n
  // Wide tiles of a group that go through the weights together, for L2.
  static constexpr int kBand = 16;

  // By group: its first row, its rows, tiles of those in front; behind them the tiles of all, and
  // the warps' sums and first faults.
  static constexpr int kFirst = 0;
  static constexpr int kRows = kMostGroups;
  static constexpr int kBefore = 2 * kMostGroups;
  static constexpr int kTotal = 3 * kMostGroups;
  static constexpr int kSums = kTotal + 1;
  static constexpr int kFaults = kSums + kWarps;
  static constexpr int kBytes = (kFaults + kWarps) * 4;
  // Behind what SmemLayout has.
  static constexpr uint32_t kTable = SmemLayout<W>::kBarriers + W.stages * 16 + 16;

  const GroupedLaunch& launch;
  int* table;

  static __device__ __forceinline__ int TilesOf(const GroupCut& cut) {
    return cut.wide + kThinOfWide * (cut.thin + cut.tall);
  }
  static __device__ __forceinline__ GroupCut Cut(int rows) {
    return CutOf(rows, !W.gates, kThinOfWide);
  }

  // By the math warps.
  __device__ __forceinline__ void Make(int warp, int lane) const {
    const GroupSource& from = launch.source;
    const int first = (warp * 32 + lane) * kGroupsAThread;
    int tiles[kGroupsAThread], mine = 0;
    int fault = INT_MAX, fault_value = 0;
#pragma unroll
    for (int i = 0; i < kGroupsAThread; ++i) {
      GroupRows rows;
      if (first + i < from.groups) rows = RowsOf(from, first + i);
      table[kFirst + first + i] = rows.first;
      table[kRows + first + i] = rows.count;
      mine += tiles[i] = launch.n_tiles * TilesOf(Cut(rows.count));
      if (rows.fault_index < fault) {
        fault = rows.fault_index;
        fault_value = rows.fault_value;
      }
    }
    int sum = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) table[kSums + warp] = sum;
    const int warp_fault = __reduce_min_sync(0xffffffffu, fault);
    if (lane == 0) table[kFaults + warp] = warp_fault;
    ptx::NamedBarrier(kStagingBarrier, W.math_threads());  // every warp's are there
    int before = sum - mine;
    int first_fault = INT_MAX;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) before += table[kSums + i];
      first_fault = min(first_fault, table[kFaults + i]);
    }
#pragma unroll
    for (int i = 0; i < kGroupsAThread; ++i) {
      table[kBefore + first + i] = before;
      before += tiles[i];
    }
    if (warp == kWarps - 1 && lane == 31) table[kTotal] = before;
    if (blockIdx.x == 0 && first_fault != INT_MAX && fault == first_fault) Tell(fault, fault_value);
  }

  // Of two threads that tell of one number both tell the same.
  __device__ void Tell(int index, int value) const {
    const GroupSource& from = launch.source;
    const auto kind = from.items ? DataFaultKind::kCount : DataFaultKind::kOffset;
    *reinterpret_cast<int4*>(from.fault) =
        make_int4(static_cast<int>(kind), index, value, from.rows);
  }

  __device__ __forceinline__ int Total() const { return table[kTotal]; }

  __device__ __forceinline__ GroupPlace At(int index) const {
    int low = 0, high = launch.source.groups - 1;  // the last group with so many in front of it
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (table[kBefore + middle] <= index) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int first = table[kFirst + low], rows = table[kRows + low];
    const GroupCut cut = Cut(rows);
    // The last band has the thin tile as well.
    const int per_band = kBand * launch.n_tiles;
    const int last = max(cut.wide - 1, 0) / kBand;
    const int inside = index - table[kBefore + low];
    const int band = min(inside / per_band, last);
    const int wide = band == last ? cut.wide - band * kBand : kBand;
    const int in_band = inside - band * per_band;
    const int of_n = wide + (band == last ? kThinOfWide * (cut.thin + cut.tall) : 0);
    const int n = in_band / of_n;
    const int tile = in_band - n * of_n;
    GroupPlace at = {.item = launch.source.items ? low : 0, .row_end = first + rows, .group = low};
    if (tile < wide) {
      at.kind = kWideTile;
      at.row0 = first + (band * kBand + tile) * W.block_m();
      at.n0 = n * W.block_n();
    } else if (cut.tall > 0) {
      const int half = tile / cut.tall;
      at.kind = kWideTile + 1 + cut.tall_kind;
      at.row0 = first + (tile - half * cut.tall) * TallRows(cut.tall_kind);
      at.n0 = n * W.block_n() + half * T.block_n();
    } else {
      at.kind = kThinTile;
      at.row0 = first + cut.wide * W.block_m();
      at.n0 = n * W.block_n() + (tile - wide) * T.block_n();
    }
    return at;
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GROUP_WALK_CUH_
