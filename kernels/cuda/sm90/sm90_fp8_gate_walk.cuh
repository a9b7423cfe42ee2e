// Which rows and which columns a gate's tile has: a walk over the tiles of plain matrices.

#pragma once

#include "kernels/cuda/sm90/launch/gate_launch.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// Rows of one matrix that a CTA multiplies at a time, by one tile of columns.
struct GatePlace {
  int matrix;   // of B's
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
  const GateLaunch& launch;

  // Tiles of rows.
  __device__ int Count() const {
    return static_cast<int>(launch.gemm.args.batch) * static_cast<int>(launch.item_tiles.value);
  }

  // Bands of tiles go through the weights together, so that tiles of one n find the rows in L2.
  __device__ __forceinline__ GatePlace At(int index, int count) const {
    const int band = Divide(index, launch.per_band);
    const int inside = index - band * static_cast<int>(launch.per_band.value);
    const int first = band * launch.band;
    const int left = count - first;
    const bool whole = left >= launch.band;
    const int block = whole ? Divide(inside, launch.band_rows) : inside / left;
    const int tile = first + inside - block * (whole ? launch.band : left);
    const int item = Divide(tile, launch.item_tiles);
    const int row = tile - item * static_cast<int>(launch.item_tiles.value);
    return {launch.gemm.one_b ? 0 : item, item, row * C.block_m(),
            static_cast<int>(launch.gemm.args.m), block};
  }
};

}  // namespace gemmd::kernels::cuda
