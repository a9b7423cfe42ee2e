// Which rows and which columns a gate's tile has: a walk over the tiles of groups, whose number the
// math warps add up in shared memory as the kernel starts, or over those of plain matrices.

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GATE_WALK_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GATE_WALK_CUH_

#include "kernels/cuda/matmul/gate_launch.h"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Rows of one group or matrix that a CTA multiplies at a time, by one tile of columns.
struct GatePlace {
  int group;    // of B's matrices
  int item;     // of A's
  int row0;     // within the item
  int row_end;  // rows from here on are not stored
  int block;    // of the result's columns
};

// Rows of B with a tile's gates, and with its ups.
struct GateRows {
  int gate;
  int up;
};
__device__ __forceinline__ GateRows GateRowsOf(const Divisor& period_tiles, int block) {
  const int period = static_cast<int>(period_tiles.value);
  const int gate = block + Divide(block, period_tiles) * period;
  return {gate * kGateCols, (gate + period) * kGateCols};
}

template <GemmConfig C>
struct GateWalk {
  static constexpr int kWarps = C.math_threads() / 32;
  // Of groups: tiles of those in front of each, and behind them of all; the warps' sums.
  static constexpr int kTotal = kMostGateGroups;
  static constexpr int kSums = kTotal + 1;
  static constexpr int kBytes = (kSums + kWarps) * 4;
  // Behind what SmemLayout has.
  static constexpr uint32_t kTable = SmemLayout<C>::kBarriers + C.stages * 16 + 16;
  static constexpr int kGroupsAThread = kMostGateGroups / C.math_threads();
  static_assert(kMostGateGroups % C.math_threads() == 0);

  const GateLaunch& launch;
  int* table;

  __device__ int TilesOf(int group) const {
    if (group >= launch.groups.groups) return 0;
    const int rows = launch.groups.sizes[group];
    const bool mine = rows > launch.groups.least_rows && rows <= launch.groups.most_rows;
    return mine ? (rows + C.block_m() - 1) / C.block_m() : 0;
  }

  // By the math warps.
  __device__ __forceinline__ void Make(int warp, int lane) const {
    if (launch.groups.starts == nullptr) return;
    const int first = (warp * 32 + lane) * kGroupsAThread;
    int tiles[kGroupsAThread], mine = 0;
#pragma unroll
    for (int i = 0; i < kGroupsAThread; ++i) mine += tiles[i] = TilesOf(first + i);
    int sum = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) table[kSums + warp] = sum;
    ptx::NamedBarrier(kStagingBarrier, C.math_threads());  // every warp's sum is there
    int before = sum - mine;
    for (int i = 0; i < warp; ++i) before += table[kSums + i];
#pragma unroll
    for (int i = 0; i < kGroupsAThread; ++i) {
      table[first + i] = before;
      before += tiles[i];
    }
    if (warp == kWarps - 1 && lane == 31) table[kTotal] = before;
  }

  // Tiles of rows.
  __device__ int Count() const {
    if (launch.groups.starts != nullptr) return table[kTotal];
    return static_cast<int>(launch.gemm.args.batch) * static_cast<int>(launch.item_tiles.value);
  }

  // Bands of tiles go through the weights together, so that tiles of one group find its weights in
  // L2, and tiles of one n the rows.
  __device__ __forceinline__ GatePlace At(int index, int count) const {
    const int band = Divide(index, launch.per_band);
    const int inside = index - band * static_cast<int>(launch.per_band.value);
    const int first = band * launch.band;
    const int left = count - first;
    const bool whole = left >= launch.band;
    const int block = whole ? Divide(inside, launch.band_rows) : inside / left;
    const int tile = first + inside - block * (whole ? launch.band : left);
    if (launch.groups.starts != nullptr) return OfGroup(tile, block);
    const int item = Divide(tile, launch.item_tiles);
    const int row = tile - item * static_cast<int>(launch.item_tiles.value);
    return {launch.gemm.one_b ? 0 : item, item, row * C.block_m(),
            static_cast<int>(launch.gemm.args.m), block};
  }

  __device__ __forceinline__ GatePlace OfGroup(int tile, int block) const {
    int low = 0, high = launch.groups.groups - 1;  // the last group with so many in front of it
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (table[middle] <= tile) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const int first = launch.groups.items ? 0 : launch.groups.starts[low];
    return {low, launch.groups.items ? low : 0, first + (tile - table[low]) * C.block_m(),
            first + launch.groups.sizes[low], block};
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GATE_WALK_CUH_
