#include "kernels/cuda/sm90/tile_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "kernels/cuda/sm90/gemm.h"

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

// How often A comes from memory, if what a wave of CTAs reads stays for the next one as well.
double TimesAIsRead(const char* kernel, int64_t m, int64_t n, int64_t k, int clusters) {
  const GemmConfig& shape = FindVariant(kernel)->shape();
  GemmArgs args;
  args.m = m;
  args.n = n;
  args.k = k;
  const auto tiles = [](int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; };
  const int64_t rows = tiles(shape.skinny() ? n : m, shape.rows * shape.share_cols);
  const int64_t cols = tiles(shape.skinny() ? m : n, shape.cols * shape.share_rows);
  const int64_t raster = RasterOf(shape, args, rows, cols, clusters);
  int64_t read = 0, index = 0;
  std::set<int64_t> of_wave, of_last;
  for (int64_t first = 0; first < rows; first += raster) {  // as TileAt goes
    for (int64_t col = 0; col < cols; ++col) {
      for (int64_t row = first; row < std::min(first + raster, rows); ++row) {
        if (index++ % clusters == 0) {
          of_last = std::move(of_wave);
          of_wave.clear();
        }
        const int64_t of_a = shape.skinny() ? col : row;
        if (of_wave.insert(of_a).second && !of_last.contains(of_a)) ++read;
      }
    }
  }
  return static_cast<double>(read) / static_cast<double>(shape.skinny() ? cols : rows);
}

TEST(RasterTest, AnAThatDoesNotStayInL2ComesFromMemoryOnce) {
  for (const auto& [kernel, clusters] : {std::tuple("sm90_bf16_tiled_m128n128s6", 132),
                                         {"sm90_bf16_tiled_m128n64s8", 132},
                                         {"sm90_bf16_tiled_m256n112s4", 132},
                                         {"sm90_bf16_tiled_m128n192s4d_c2", 66},
                                         {"sm90_bf16_tiled_m256n128s3d_r2", 66},
                                         {"sm90_bf16_skinny_m160n128s5", 132},
                                         {"sm90_bf16_skinny_m64n64s6x2", 264}}) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{47246, 320, 1216},
                                  {13000, 1024, 2032},
                                  {112811, 448, 1152},
                                  {20000, 96, 4096}}) {
      EXPECT_LT(TimesAIsRead(kernel, m, n, k, clusters), 1.3)
          << kernel << " " << m << " " << n << " " << k;
    }
  }
}

// It finds A in L2, and weights come from memory once.
TEST(RasterTest, AllColumnsOfFewRowsMeetTheWeightsTogether) {
  const GemmConfig& shape = FindVariant("sm90_fp8_skinny_m64n64s6x2")->shape();
  GemmArgs args;
  args.m = 512;
  args.n = 16384;
  args.k = 7168;
  EXPECT_EQ(RasterOf(shape, args, 256, 8, 264), 1);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
