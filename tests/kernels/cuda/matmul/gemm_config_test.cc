// What follows from a config, for every one that is built.

#include "kernels/cuda/sm90/gemm_config.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/sm90/gemm_family.h"

namespace gemmd::kernels::cuda {
namespace {

TEST(GemmConfigTest, AStageHasAScaleForEveryColumnOfEveryTile) {
  for (const GemmVariant& variant : AllVariants()) {
    const GemmConfig& c = variant.shape();
    if (!c.promotes()) continue;
    for (int n0 = 0; n0 < 64 * c.block_n(); n0 += c.block_n()) {
      const int first_run = n0 / c.b_scale_run();
      for (int n = n0; n < n0 + c.block_n(); ++n) {
        const int run = n / c.b_scale_run() - first_run;
        ASSERT_LT(run, c.b_scale_count()) << Name(variant) << " at " << n;
        ASSERT_EQ((first_run + run) * c.b_scale_run() / kBlockK, n / kBlockK) << Name(variant);
      }
    }
  }
}

TEST(GemmConfigTest, ACodeIsTheConfig) {
  for (const GemmVariant& variant : AllVariants()) {
    for (const bool along_rows : {false, true}) {
      GemmConfig c = variant.shape();
      c.b_along_rows = along_rows;
      const GemmConfig decoded = Decode(Encode(c));
      EXPECT_EQ(Encode(decoded), Encode(c)) << Name(variant);
      EXPECT_EQ(decoded.b_along_rows, along_rows) << Name(variant);
      EXPECT_EQ(decoded.ctas_per_sm, c.ctas_per_sm) << Name(variant);
      EXPECT_EQ(decoded.smem_bytes(), c.smem_bytes()) << Name(variant);
    }
  }
}

TEST(GemmConfigTest, EveryLengthOfATilesFirstRunHasALoop) {
  for (const GemmVariant& variant : AllVariants()) {
    const GemmConfig& c = variant.shape();
    if (!c.promotes()) continue;
    for (int n0 = 0; n0 < 64 * c.block_n(); n0 += c.block_n()) {
      EXPECT_EQ((c.b_scale_run() - n0 % c.b_scale_run()) % c.tile_step(), 0) << Name(variant);
    }
  }
}

TEST(GemmConfigTest, RowsOfABoxLieInOtherBanks) {
  for (const GemmVariant& variant : AllVariants()) {
    const GemmConfig& c = variant.shape();
    if (!c.stores_tile) continue;
    EXPECT_EQ(c.cols % c.store_cols(), 0) << Name(variant);
    EXPECT_LE(c.store_cols(), 256) << Name(variant) << ": a tensor map's box";
    EXPECT_EQ(kStoreRows * c.store_cols() * 2 % 128, 0) << Name(variant) << ": a box's address";
    if (c.store_cols() == 64) continue;  // swizzled
    std::set<int> units;
    for (int row = 0; row < 8; ++row) units.insert(row * c.store_cols() / 8 % 8);
    EXPECT_EQ(units.size(), 8) << Name(variant) << ": stmatrix writes 8 rows at once";
  }
}

// TMA's row is 128 bytes of whatever type, and a scale of FP8 is one such row's.
TEST(GemmConfigTest, CHasRoomInTheRing) {
  int by_ring = 0;
  for (const GemmVariant& variant : AllVariants()) {
    const GemmConfig& c = variant.shape();
    if (!c.adds_by_ring()) continue;
    ++by_ring;
    EXPECT_GE(c.add_stages() * c.add_boxes_of_stage() * 64, c.block_n()) << Name(variant);
    EXPECT_LE(c.add_boxes_of_stage() * c.add_box_bytes(), c.stage_bytes()) << Name(variant);
    EXPECT_EQ(c.add_box_bytes() % 1024, 0) << Name(variant) << ": a swizzled box's address";
    EXPECT_LE(c.block_m(), 256) << Name(variant) << ": a tensor map's box";
    EXPECT_LT(c.add_stages(), c.stages) << Name(variant);
  }
  EXPECT_GT(by_ring, static_cast<int>(AllVariants().size()) / 2);
}

TEST(GemmConfigTest, AKBlockIsARowOf128Bytes) {
  static_assert(kRowBytes == kBlockK);
  for (const GemmVariant& variant : AllVariants()) {
    const GemmConfig& c = variant.shape();
    EXPECT_EQ(c.block_k() * c.element_bytes(), kRowBytes) << Name(variant);
    EXPECT_EQ(c.scale_bytes() > 0, c.scales_blocks()) << Name(variant);
    EXPECT_LE(c.result_regs() + c.accumulator_regs() + 30, c.math_registers()) << Name(variant);
  }
}

TEST(GemmConfigTest, ANumberSaysAllOfIt) {
  for (const GemmVariant& variant : AllVariants()) {
    const GemmConfig& c = variant.shape();
    const GemmConfig again = Decode(Encode(c));
    EXPECT_EQ(again.family, c.family);
    EXPECT_EQ(again.mma, c.mma);
    EXPECT_EQ(again.alternates, c.alternates);
    EXPECT_EQ(again.rows, c.rows);
    EXPECT_EQ(again.cols, c.cols);
    EXPECT_EQ(again.groups, c.groups);
    EXPECT_EQ(again.k_groups, c.k_groups);
    EXPECT_EQ(again.stages, c.stages);
    EXPECT_EQ(again.k_blocks, c.k_blocks);
    EXPECT_EQ(again.share_cols, c.share_cols);
    EXPECT_EQ(again.share_rows, c.share_rows);
    EXPECT_EQ(again.ctas_per_sm, c.ctas_per_sm);
    EXPECT_EQ(again.stores_tile, c.stores_tile);
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
