// From step 6 on: which tiles a CTA works on, and in which order.

#pragma once

#include "kernels/cuda/ladder/tile.cuh"

namespace gemmd::kernels::cuda::ladder {

// Tiles in bands of kBand rows, down each column of a band before the next one. The 132 tiles at
// work at one time make about a square: they share rows of A and B as much as can be, and what they
// read fits into L2.
//
//     0  8 16 24 ...      instead of      0  1  2  3 ...
//     1  9 17 25                         32 33 34 35
//     :  :  :  :                          :
//     7 15 23 31
struct TileOrder {
  static constexpr int kBand = 8;

  int row_tiles;
  int col_tiles;

  __device__ int count() const { return row_tiles * col_tiles; }
  // In tiles: x is the column, y the row.
  __device__ int2 Place(int tile) const {
    const int band = tile / (kBand * col_tiles);
    const int inside = tile % (kBand * col_tiles);
    const int rows = min(kBand, row_tiles - band * kBand);  // the last band may have fewer
    return {inside / rows, band * kBand + inside % rows};
  }
};

}  // namespace gemmd::kernels::cuda::ladder
