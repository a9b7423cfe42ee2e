#include "kernels/cuda/sm90/tile_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace gemmd::kernels::cuda {
namespace {

constexpr int64_t kLimit = int64_t{1} << 30;

// As the kernels divide.
int64_t Quotient(int64_t x, const Divisor& by) {
  return static_cast<int64_t>((uint64_t{2} * x * by.magic >> 32) >> by.shift);
}

void ExpectExactAround(int64_t x, int64_t value, const Divisor& by) {
  for (int64_t near = std::max<int64_t>(x - 1, 0); near <= std::min(x + 1, kLimit - 1); ++near) {
    ASSERT_EQ(Quotient(near, by), near / value) << near << " / " << value;
  }
}

TEST(DivisorTest, IsExactAtEveryMultipleOfSmallDivisors) {
  for (int64_t value = 1; value <= 300; ++value) {
    const Divisor by = MakeDivisor(value);
    for (int64_t x = 0; x < 100000; x += value) ExpectExactAround(x, value, by);
  }
}

TEST(DivisorTest, IsExactUpToTheLimit) {
  for (int shift = 0; shift <= 30; ++shift) {
    for (int64_t value = (int64_t{1} << shift) - 2; value <= (int64_t{1} << shift) + 2; ++value) {
      if (value < 1) continue;
      const Divisor by = MakeDivisor(value);
      const int64_t last = (kLimit - 1) / value * value;
      for (int64_t back = 0; back < 1000 && last - back * value >= 0; ++back) {
        ExpectExactAround(last - back * value, value, by);
      }
      ExpectExactAround(kLimit - 1, value, by);
    }
  }
}

TEST(DivisorTest, OneIsWhatAnUnusedOneDividesBy) {
  const Divisor made = MakeDivisor(1);
  const Divisor unused;
  EXPECT_EQ(made.value, unused.value);
  EXPECT_EQ(made.magic, unused.magic);
  EXPECT_EQ(made.shift, unused.shift);
}

TEST(TileGridTest, CountsTilesAndTheLastBand) {
  const TileGrid grid = GridOf(/*row_tiles=*/37, /*col_tiles=*/5, /*batch=*/3, /*raster=*/16);
  EXPECT_EQ(grid.count, 37 * 5 * 3);
  EXPECT_EQ(grid.per_batch.value, 37u * 5);
  EXPECT_EQ(grid.per_band.value, 16u * 5);
  EXPECT_EQ(grid.raster_rows.value, 16u);
  EXPECT_EQ(grid.last_rows.value, 5u);
  EXPECT_EQ(GridOf(32, 5, 1, 16).last_rows.value, 16u);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
