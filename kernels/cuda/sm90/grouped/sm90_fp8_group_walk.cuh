// The walk over the tiles of groups. Each CTA reads where the groups lie as it starts, into a table
// of its shared memory; tiles are numbered through all groups, and a number leads to its place.

#pragma once

#include <climits>

#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/launch/grouped.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Rows of one group that a CTA multiplies at a time, by rows of its weights from n0 on.
struct GroupPlace {
  int kind;  // kThinTile, kWideTile, ..
  int item;
  int row0;     // within the item
  int row_end;  // of the group: rows from here on are not stored
  int n0;
  int group;
  int rest = 0;  // of kRestTile: rows between the pair's
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

// A group's rows and the weights' as tiles, numbered from 0 on. `W` and `T`: the wide tile's
// config, and the thin one's.
template <GemmConfig W, GemmConfig T>
struct MixedTiles {
  static_assert(W.block_m() == kWideRows && T.block_m() == kThinRows);
  static constexpr int kThinOfWide = W.block_n() / T.block_n();  // thin tiles with a wide one's n
  static constexpr int kWays = kGrains;
  // Wide tiles of a group that go through the weights together, for L2.
  static constexpr int kBand = 16;

  // For W.block_n() of the weights.
  static __device__ __forceinline__ int Count(int rows, int way) {
    const GroupCut cut = CutOf(rows, static_cast<Grain>(way));
    return cut.wide + cut.half + kThinOfWide * cut.thin;
  }
  // What `at` lacks of the group's tile `inside`: its first row is the group's before.
  static __device__ __forceinline__ void Place(int rows, int inside, int n_tiles, int way,
                                               GroupPlace& at) {
    const GroupCut cut = CutOf(rows, static_cast<Grain>(way));
    // The last band has the half tile as well.
    const int per_band = kBand * n_tiles;
    const int last = max(cut.wide - 1, 0) / kBand;
    const int band = min(inside / per_band, last);
    const int wide = band == last ? cut.wide - band * kBand : kBand;
    const int in_band = inside - band * per_band;
    const int of_n = wide + (band == last ? cut.half + kThinOfWide * cut.thin : 0);
    const int n = in_band / of_n;
    const int tile = in_band - n * of_n;
    at.n0 = n * W.block_n();
    if (cut.thin > 0) {
      const int right = tile / cut.thin;
      at.kind = kThinTile;
      at.n0 += right * T.block_n();
      at.row0 += (tile - right * cut.thin) * kThinRows;
      at.row_end = min(at.row_end, at.row0 + kThinRows);
    } else if (tile < wide) {
      at.kind = kWideTile;
      at.row0 += (band * kBand + tile) * W.block_m();
    } else {
      at.kind = kHalfTile;
      at.row0 += cut.wide * W.block_m() + (tile - wide) * kHalfRows;
      at.row_end = min(at.row_end, at.row0 + kHalfRows);
    }
  }
  // The way by which all groups are done first. `counts`: by way, tiles of groups with more than
  // kThinRows rows, and behind them those of the others.
  static __device__ __forceinline__ int Choose(const int (&counts)[kWays + 1], int k_blocks,
                                               int sms) {
    const int fine[kWays] = {counts[0], counts[1], counts[2]};
    return static_cast<int>(GrainOf(fine, counts[kWays], k_blocks, T.gates, sms));
  }
};

// Two CTAs' tiles under one number: two wide ones of the same columns, or, of rows that are left,
// two of columns beside one another. Those of the second CTA lie one further along.
template <GemmConfig W>
struct PairedTiles {
  static_assert(W.rows == kWideRows && W.share_cols == 2);
  static constexpr int kBand = 8;  // pairs of a group that go through the weights together

  static constexpr int kWays = 1;

  // For twice W.block_n() of the weights.
  static __device__ __forceinline__ int Count(int rows, int) {
    const PairCut cut = PairCutOf(rows, W.takes_rest);
    return 2 * cut.pairs + cut.wide + cut.half;
  }
  static __device__ __forceinline__ void Place(int rows, int inside, int n_steps, int,
                                               GroupPlace& at) {
    const PairCut cut = PairCutOf(rows, W.takes_rest);
    const int per_band = 2 * kBand * n_steps;
    const int last = max(cut.pairs - 1, 0) / kBand;
    const int band = min(inside / per_band, last);
    const int of_band = band == last ? cut.pairs - band * kBand : kBand;
    const int left = band == last ? cut.wide + cut.half : 0;
    const int in_band = inside - band * per_band;
    const int of_step = 2 * of_band + left;
    const int step = in_band / of_step;
    const int tile = in_band - step * of_step;
    at.n0 = step * 2 * W.block_n();
    if (tile < 2 * of_band) {
      const int right = tile / of_band;
      const int pair = band * kBand + tile - right * of_band;
      if (pair == cut.pairs - 1) at.rest = cut.rest;
      at.kind = at.rest > 0 ? kRestTile : kPairTile;
      at.n0 += right * W.block_n();
      at.row0 += pair * 2 * W.block_m();
    } else if (tile - 2 * of_band < cut.wide) {
      at.kind = kWideTile;
      at.row0 += cut.pairs * 2 * W.block_m();
    } else {
      at.kind = kHalfTile;
      at.row0 += (2 * cut.pairs + cut.wide) * W.block_m();
    }
  }
};

// A unit for each of W's warpgroups, or for all but one. A tile ends where the next begins.
template <GemmConfig W>
struct RaggedTiles {
  static_assert(W.groups == kMostUnits && W.rows == kMostUnits * kUnitRows);
  static constexpr int kBand = 2048 / W.rows;  // of a group's tiles, as MixedTiles'

  static constexpr int kWays = 1;

  static __device__ __forceinline__ int Count(int rows, int) { return ManyRowsCut(rows).tiles; }
  static __device__ __forceinline__ void Place(int rows, int inside, int n_tiles, int,
                                               GroupPlace& at) {
    const ManyRowsCut cut(rows);
    const int per_band = kBand * n_tiles;
    const int band = min(inside / per_band, (cut.tiles - 1) / kBand);
    const int tiles = min(cut.tiles - band * kBand, kBand);
    const int in_band = inside - band * per_band;
    const int n = in_band / tiles;
    const int tile = band * kBand + in_band - n * tiles;
    at.kind = kWideTile;
    at.n0 = n * W.block_n();
    at.row0 += cut.FirstUnit(tile) * kUnitRows;
    at.row_end = min(at.row_end, at.row0 + cut.Units(tile) * kUnitRows);
  }
};

// `W`: a config with the ring's warps and stages.
template <GemmConfig W, class Tiles>
struct GroupWalk {
  static constexpr int kWarps = W.math_threads() / 32;
  static constexpr int kGroupsAThread = (kMostGroups + W.math_threads() - 1) / W.math_threads();
  static constexpr bool kFits = kGroupsAThread * W.math_threads() == kMostGroups;

  static constexpr int kWays = Tiles::kWays;  // of cutting groups into tiles

  // By group: its first row, its rows, tiles of those in front; behind them the tiles of all, the
  // warps' sums and first faults. Where there are several ways: the one that was chosen, and of
  // each warp its tiles that depend on it, and by way these and the others.
  static constexpr int kFirst = 0;
  static constexpr int kRows = kMostGroups;
  static constexpr int kBefore = 2 * kMostGroups;
  static constexpr int kTotal = 3 * kMostGroups;
  static constexpr int kSums = kTotal + 1;
  static constexpr int kFaults = kSums + kWarps;
  static constexpr int kWay = kFaults + kWarps;
  static constexpr int kFine = kWay + 1;
  static constexpr int kCounts = kFine + kWarps;
  static constexpr int kBytes = (kWays > 1 ? kCounts + (kWays + 1) * kWarps : kWay) * 4;
  // Behind what SmemLayout has.
  static constexpr uint32_t kTable = SmemLayout<W>::kBarriers + W.stages * 16 + 16;

  const GroupedLaunch& launch;
  int* table;

  // By the math warps.
  __device__ __forceinline__ void Make(int warp, int lane) const {
    const GroupSource& from = launch.source;
    const int first = (warp * 32 + lane) * kGroupsAThread;
    int tiles[kGroupsAThread], mine = 0, fine = 0;
    int fault = INT_MAX, fault_value = 0;
#pragma unroll
    for (int i = 0; i < kGroupsAThread; ++i) {
      GroupRows rows;
      if (first + i < from.groups) rows = RowsOf(from, first + i);
      if (kFits || first + i < kMostGroups) {
        table[kFirst + first + i] = rows.first;
        table[kRows + first + i] = rows.count;
      }
      mine += tiles[i] = launch.n_tiles * Tiles::Count(rows.count, 0);
      if (kWays > 1 && rows.count > kThinRows) fine += tiles[i];
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
    if constexpr (kWays > 1) {
      fine = __reduce_add_sync(0xffffffffu, fine);
      if (lane == 0) table[kFine + warp] = fine;
    }
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
    if constexpr (kWays > 1) {
      int way = 0;
      if (MayBeFiner()) way = ChooseWay(first, warp, lane, tiles, before);
      if (warp == 0 && lane == 0) table[kWay] = way;
    }
#pragma unroll
    for (int i = 0; i < kGroupsAThread; ++i) {
      if (kFits || first + i < kMostGroups) table[kBefore + first + i] = before;
      before += tiles[i];
    }
    if (warp == kWarps - 1 && lane == 31) table[kTotal] = before;
    if (blockIdx.x == 0 && first_fault != INT_MAX && fault == first_fault) Tell(fault, fault_value);
  }

  // Whether another way than the first may be chosen: most kernels with thin tiles alone, and those
  // with many others, are not to fetch the code for it.
  __device__ __forceinline__ bool MayBeFiner() const {
    int fine = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) fine += table[kFine + i];
    return launch.grain > 0 ||
           (launch.grain == kGrainThatFills && fine > 0 && fine <= static_cast<int>(gridDim.x));
  }
  // By all math warps. Another way's tiles of this thread's groups, and those in front of them.
  __device__ __forceinline__ int ChooseWay(int first, int warp, int lane,
                                           int (&tiles)[kGroupsAThread], int& before) const {
    static_assert(kFits);
#pragma unroll 1
    for (int way = 0; way <= kWays; ++way) {
      int count = 0;
      for (int i = 0; i < kGroupsAThread; ++i) {
        const int rows = table[kRows + first + i];
        if ((rows > kThinRows) == (way < kWays)) count += Tiles::Count(rows, way);
      }
      count = __reduce_add_sync(0xffffffffu, count * launch.n_tiles);
      if (lane == 0) table[kCounts + way * kWarps + warp] = count;
    }
    ptx::NamedBarrier(kStagingBarrier, W.math_threads());
    int counts[kWays + 1] = {};
#pragma unroll
    for (int i = 0; i < (kWays + 1) * kWarps; ++i) counts[i / kWarps] += table[kCounts + i];
    const int way = launch.grain != kGrainThatFills
                        ? launch.grain
                        : Tiles::Choose(counts, launch.gemm.k_blocks, static_cast<int>(gridDim.x));
    if (way == 0) return 0;
    int mine = 0;
#pragma unroll
    for (int i = 0; i < kGroupsAThread; ++i) {
      mine += tiles[i] = launch.n_tiles * Tiles::Count(table[kRows + first + i], way);
    }
    int sum = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    before = sum - mine;
    for (int i = 0; i < warp; ++i) {
      before += table[kCounts + way * kWarps + i] + table[kCounts + kWays * kWarps + i];
    }
    return way;
  }

  // In place of Make, the table of another CTA of the cluster, at `remote`: numbers that change
  // meanwhile would lead the two to other tiles, and each would wait for the other.
  __device__ __forceinline__ void Copy(uint32_t remote, int thread) const {
    for (int i = thread; i <= kTotal; i += W.math_threads()) {
      table[i] = ptx::LoadRemote(remote + i * 4);
    }
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
    GroupPlace at = {.item = launch.source.items ? low : 0,
                     .row0 = first,
                     .row_end = first + rows,
                     .group = low};
    const int way = kWays > 1 ? table[kWay] : 0;
    Tiles::Place(rows, index - table[kBefore + low], launch.n_tiles, way, at);
    return at;
  }
};

}  // namespace gemmd::kernels::cuda
