// How a group's rows become tiles.

#include "kernels/cuda/sm90/launch/group_cut.h"

#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

int Places(const GroupCut& cut) {
  return cut.wide * kWideRows + cut.thin * kThinRows + cut.tall * TallRows(cut.tall_kind);
}

TEST(GroupCutTest, EveryRowHasItsPlaceAndNoTileIsEmpty) {
  for (const bool tall : {false, true}) {
    for (int rows = 1; rows < 5000; ++rows) {
      const GroupCut cut = CutOf(rows, tall, 2);
      EXPECT_GE(Places(cut), rows);
      // Without its last tile the rows would have no place.
      const int last = cut.tall > 0   ? TallRows(cut.tall_kind)
                       : cut.thin > 0 ? kThinRows
                                      : kWideRows;
      EXPECT_LT(Places(cut) - last, rows) << rows;
    }
    EXPECT_EQ(Places(CutOf(0, tall, 2)), 0);
  }
}

TEST(GroupCutTest, TilesThatShareWeightsAreOfOneKindUnlessTheyAreMany) {
  for (int rows = 1; rows < 5000; ++rows) {
    const GroupCut cut = CutOf(rows, true, 2);
    EXPECT_TRUE(cut.tall == 0 || cut.wide + cut.thin == 0) << rows;
    EXPECT_TRUE(cut.thin == 0 || cut.wide == 0 || cut.wide >= kWideInFront) << rows;
  }
}

TEST(GroupCutTest, TallTilesStandWhereWideOnesWouldWasteRows) {
  EXPECT_EQ(CutOf(64, true, 2).thin, 1);
  EXPECT_EQ(CutOf(96, true, 2).wide, 1);
  EXPECT_EQ(CutOf(192, true, 2).tall, 1);
  EXPECT_EQ(CutOf(256, true, 2).wide, 2);
  EXPECT_EQ(CutOf(150, true, 2).tall, 1);
  EXPECT_EQ(CutOf(300, true, 2).wide, 3);
  EXPECT_EQ(CutOf(300, false, 1).wide, 3);
  EXPECT_EQ(CutOf(8192, true, 2).wide, 64);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
