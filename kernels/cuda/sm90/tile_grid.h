// How a launch's tiles are laid out and ordered: made on the host, read by the kernels
// (sm90_fp8_tile.cuh).

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda {

// Division of numbers below 2^30 by a fixed one, without a branch or the instructions for it:
// x / value = high32(2 x * magic) >> shift.
struct Divisor {
  uint32_t value = 1;
  uint32_t magic = 0x80000000;
  uint32_t shift = 0;
};

// Tiles in bands of `raster` along the row side, one batch after the other.
struct TileGrid {
  int row_tiles = 1;  // cluster-tiles along the row side
  int count = 1;      // cluster-tiles in all
  int raster = 1;     // cluster-tiles in a band along the row side
  Divisor per_batch;
  Divisor per_band;
  Divisor raster_rows;  // rows of a band
  Divisor last_rows;    // rows of the last one
};

// `value` at least 1, below 2^31.
Divisor MakeDivisor(int64_t value);

// `raster` at most `row_tiles`; at most 2^25 tiles in all (legality.cc).
TileGrid GridOf(int64_t row_tiles, int64_t col_tiles, int64_t batch, int raster);

}  // namespace gemmd::kernels::cuda
