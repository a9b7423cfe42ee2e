#include "kernels/cuda/sm90/tile_grid.h"

namespace gemmd::kernels::cuda {

// Exact (Granlund and Montgomery, 1994, with magic rounded up): its error, below 2^-30 of x, never
// reaches the next multiple.
Divisor MakeDivisor(int64_t value) {
  Divisor by = {.value = static_cast<uint32_t>(value)};
  while ((int64_t{2} << by.shift) <= value) ++by.shift;
  by.magic = static_cast<uint32_t>(((uint64_t{1} << (31 + by.shift)) + value - 1) / value);
  return by;
}

TileGrid GridOf(int64_t row_tiles, int64_t col_tiles, int64_t batch, int raster) {
  TileGrid grid;
  grid.row_tiles = static_cast<int>(row_tiles);
  grid.count = static_cast<int>(row_tiles * col_tiles * batch);
  grid.raster = raster;
  grid.per_batch = MakeDivisor(row_tiles * col_tiles);
  grid.per_band = MakeDivisor(raster * col_tiles);
  grid.raster_rows = MakeDivisor(raster);
  grid.last_rows = MakeDivisor(row_tiles % raster == 0 ? raster : row_tiles % raster);
  return grid;
}

}  // namespace gemmd::kernels::cuda
