// How a group's rows become tiles.

#include "kernels/cuda/sm90/launch/group_cut.h"

#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

int Places(const GroupCut& cut) {
  return cut.wide * kWideRows + cut.half * kHalfRows + cut.thin * kThinRows;
}

TEST(GroupCutTest, EveryRowHasItsPlaceInUnitsOf64) {
  EXPECT_EQ(Places(CutOf(0)), 0);
  for (int rows = 1; rows < 5000; ++rows) {
    EXPECT_GE(Places(CutOf(rows)), rows);
    EXPECT_LT(Places(CutOf(rows)), rows + 64) << rows;
  }
}

TEST(GroupCutTest, ThinTilesStandAloneAndHalfOnesAtTheEnd) {
  for (int rows = 1; rows < 5000; ++rows) {
    const GroupCut cut = CutOf(rows);
    EXPECT_EQ(cut.thin, rows <= 64) << rows;
    EXPECT_TRUE(cut.thin == 0 || cut.wide + cut.half == 0) << rows;
    EXPECT_LE(cut.half, 1) << rows;
    EXPECT_TRUE(cut.half == 0 || cut.wide > 0) << rows;
  }
  EXPECT_EQ(CutOf(96).wide, 1);
  EXPECT_EQ(CutOf(192).half, 1);
  EXPECT_EQ(CutOf(200).wide, 2);
  EXPECT_EQ(CutOf(8192).wide, 64);
}

TEST(GroupCutTest, EveryGrainHasAPlaceForEveryRow) {
  for (int rows = 0; rows < 5000; ++rows) {
    for (const Grain grain : {Grain::kHalves, Grain::kThin}) {
      const GroupCut cut = CutOf(rows, grain);
      EXPECT_GE(Places(cut), rows);
      EXPECT_LT(Places(cut), rows + 64) << rows;
      EXPECT_EQ(cut.wide, 0) << rows;
      EXPECT_TRUE(cut.half == 0 || cut.thin == 0) << rows;
    }
    EXPECT_EQ(CutOf(rows, Grain::kThin).half, 0);
    if (rows > kThinRows) {
      EXPECT_EQ(CutOf(rows, Grain::kHalves).thin, 0);
    }
  }
}

// Of one group, whose weights have so many rows, beside thin tiles of others.
Grain ChosenGrain(int rows, int n, int k_blocks, int thin = 0, bool gated = false) {
  int fine[kGrains];
  for (int grain = 0; grain < kGrains; ++grain) {
    const GroupCut cut = CutOf(rows, static_cast<Grain>(grain));
    fine[grain] = (cut.wide + cut.half) * (n / 256) + cut.thin * (n / (gated ? 256 : 128));
  }
  return GrainOf(fine, thin, k_blocks, gated, 132);
}

TEST(GrainTest, FewTilesAreFinerAsFarAsThatFillsTheSms) {
  EXPECT_EQ(ChosenGrain(79, 5120, 64), Grain::kThin);     // 80 of them, where wide ones are 20
  EXPECT_EQ(ChosenGrain(319, 5120, 64), Grain::kHalves);  // 100; thin ones would be 200
  EXPECT_EQ(ChosenGrain(512, 8192, 64), Grain::kWide);    // 128
  EXPECT_EQ(ChosenGrain(640, 8192, 64), Grain::kWide);    // 160 are more than a round
  EXPECT_EQ(ChosenGrain(319, 5120, 64, 0, true), Grain::kHalves);
}

TEST(GrainTest, BesideManyThinTilesALongOneIsNoLongerTheLast) {
  EXPECT_NE(ChosenGrain(130, 512, 56, 130), Grain::kWide);
  EXPECT_EQ(ChosenGrain(130, 512, 56, 13000), Grain::kWide);  // the mean is what counts
}

TEST(PairCutTest, EveryRowHasItsPlaceAndFewRowsBehindPairsAreTheLastOnes) {
  for (int rows = 0; rows < 5000; ++rows) {
    const PairCut cut = PairCutOf(rows, true);
    const int places =
        2 * cut.pairs * kWideRows + cut.rest + cut.wide * kWideRows + cut.half * kHalfRows;
    EXPECT_GE(places, rows);
    EXPECT_LT(places, rows + 64) << rows;
    EXPECT_LE(cut.wide, 1) << rows;
    EXPECT_LE(cut.half, 1) << rows;
    if (cut.rest > 0) {
      EXPECT_TRUE(cut.pairs > 0 && cut.wide + cut.half == 0) << rows;
    }
  }
  EXPECT_EQ(PairCutOf(256, true).rest, 0);
  EXPECT_EQ(PairCutOf(257, false).rest, 0);
  EXPECT_EQ(PairCutOf(257, false).half, 1);
  EXPECT_EQ(PairCutOf(257, true).rest, 1);
  EXPECT_EQ(PairCutOf(544, true).rest, 32);
  EXPECT_EQ(PairCutOf(289, true).half, 1);
  EXPECT_EQ(PairCutOf(30, true).half, 1);
}

TEST(ManyRowsTest, TilesHaveTwoOrThreeUnitsAndNoneIsLeftAlone) {
  for (int rows = 1; rows < 5000; ++rows) {
    const ManyRowsCut cut(rows);
    int end = 0;
    for (int tile = 0; tile < cut.tiles; ++tile) {
      EXPECT_EQ(cut.FirstUnit(tile), end) << rows;
      EXPECT_TRUE(cut.Units(tile) == 2 || cut.Units(tile) == 3) << rows;
      EXPECT_LT(end * kUnitRows, rows) << "a tile without rows";
      end += cut.Units(tile);
    }
    EXPECT_GE(end * kUnitRows, rows);
    EXPECT_TRUE(rows <= kUnitRows || (end - 1) * kUnitRows < rows) << rows;
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
