// What is asked for ahead of a matmul: lines of B that it reads first, each once, and none where
// that would only hold up the kernel in front.

#include "kernels/cuda/weights_ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/k_split.h"
#include "kernels/cuda/tile_grid.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr int kSms = 132;
const uint8_t* const kB = reinterpret_cast<const uint8_t*>(uintptr_t{1} << 40);

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

// A launch for weights [n, k] as far as AheadOf looks at it, without a device's tensor maps.
GemmLaunch LaunchOf(const GemmVariant& variant, int64_t m, int64_t n, int64_t k) {
  const GemmConfig& shape = variant.shape();
  GemmLaunch launch;
  launch.args = {.m = m, .n = n, .k = k, .b = kB, .ldb = k};
  launch.split = SplitOf(shape, variant.split, CeilDiv(k / kBlockK, shape.k_blocks));
  const int64_t tiles = CeilDiv(n, shape.block_n());
  launch.tiles = GridOf(tiles, 1, 1, 1);
  launch.clusters = static_cast<int>(
      variant.split > 1 ? tiles : std::min<int64_t>(tiles, kSms * shape.ctas_per_sm));
  launch.streams_b = true;
  return launch;
}

TEST(WeightsAheadTest, LinesLieInBWhereItIsReadFirst) {
  int asked = 0;
  for (const GemmVariant& variant : AllVariants()) {
    const GemmConfig& shape = variant.shape();
    if (!shape.skinny() || shape.multicast() > 1) continue;
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{7168, 16384}, {8192, 8192 + 128}}) {
      if (shape.k_blocks * variant.split * 2 > k / kBlockK) continue;
      const GemmLaunch launch = LaunchOf(variant, 64, n, k);
      const WeightsAhead ahead = AheadOf(variant, launch);
      std::set<const uint8_t*> lines;
      for (int i = 0; i < ahead.lines(); ++i) {
        const uint8_t* const line = ahead.Line(i);
        ASSERT_TRUE(lines.insert(line).second) << Name(variant) << ", line " << i;
        const int64_t row = (line - kB) / k;
        const int64_t block = (line - kB) % k / kBlockK;
        ASSERT_GE(line, kB);
        ASSERT_LT(row, n) << Name(variant);
        ASSERT_EQ((line - kB) % kBlockK, 0);
        // Of the stages that come first in a part of k.
        bool first = false;
        for (int part = 0; part < launch.split.parts; ++part) {
          const int begin =
              (part * launch.split.step + std::min(part, launch.split.extra)) * shape.k_blocks;
          first |= begin <= block && block < begin + ahead.blocks;
        }
        ASSERT_TRUE(first) << Name(variant) << ": block " << block;
        // Of the tiles that come first.
        ASSERT_LT(row / shape.block_n(), launch.clusters);
      }
      ASSERT_LE(ahead.lines() * int64_t{kBlockK}, int64_t{4} << 20);
      asked += ahead.lines() > 0;
    }
  }
  EXPECT_GT(asked, 10);
}

TEST(WeightsAheadTest, NoneWhereMemoryDoesNotDecide) {
  const GemmVariant variant = *FindVariant("sm90_fp8_skinny_m64n64k512s3g2");
  const GemmLaunch large = LaunchOf(variant, 64, 7168, 16384);
  ASSERT_GT(AheadOf(variant, large).lines(), 0);
  EXPECT_EQ(AheadOf(variant, LaunchOf(variant, 64, 7168, 2048)).lines(), 0);
  EXPECT_EQ(AheadOf(variant, LaunchOf(variant, 4096, 7168, 16384)).lines(), 0);
  GemmLaunch again = large;
  again.streams_b = false;  // B is read more than once
  EXPECT_EQ(AheadOf(variant, again).lines(), 0);
  GemmLaunch batched = large;
  batched.args.batch = 2;
  EXPECT_EQ(AheadOf(variant, batched).lines(), 0);
}

TEST(WeightsAheadTest, NoLinesByDefault) { EXPECT_EQ(WeightsAhead{}.lines(), 0); }

}  // namespace
}  // namespace gemmd::kernels::cuda
