#include "client/cli/numerics/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShapeTest, ReadsBAsKnUnlessToldOtherwise) {
  absl::StatusOr<MatmulShape> shape = ShapeOfMatmul({5, 7}, {7, 3}, false);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->n, 3);
  EXPECT_THAT(shape->DShape(), ElementsAre(5, 3));
  shape = ShapeOfMatmul({5, 7}, {3, 7}, true);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->n, 3);
  EXPECT_EQ(shape->k, 7);
}

TEST(ShapeTest, OneBServesABatchOfA) {
  absl::StatusOr<MatmulShape> shape = ShapeOfMatmul({4, 5, 7}, {7, 3}, false);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_THAT(shape->DShape(), ElementsAre(4, 5, 3));
  EXPECT_FALSE(shape->b_batched);
  shape = ShapeOfMatmul({4, 5, 7}, {4, 7, 3}, false);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_TRUE(shape->b_batched);
}

TEST(ShapeTest, NamesTheExtentsThatDoNotMeet) {
  EXPECT_THAT(ShapeOfMatmul({5, 7}, {3, 7}, false).status().message(),
              HasSubstr("k=7, B [3, 7] read as [k, n] has k=3; pass --nt"));
  EXPECT_THAT(ShapeOfMatmul({5, 7}, {7, 3}, true).status().message(), HasSubstr("leave --nt out"));
  EXPECT_THAT(ShapeOfMatmul({5, 7}, {4, 3}, false).status().message(),
              HasSubstr("they must be equal"));
  EXPECT_THAT(ShapeOfMatmul({7}, {7, 3}, false).status().message(), HasSubstr("A is [7]"));
  EXPECT_THAT(ShapeOfMatmul({2, 5, 7}, {3, 7, 3}, false).status().message(), HasSubstr("batch 3"));
  EXPECT_THAT(ShapeOfMatmul({5, 7}, {3, 7, 3}, false).status().message(), HasSubstr("has none"));
}

TEST(ShapeTest, ChecksCAndBias) {
  const MatmulShape shape = *ShapeOfMatmul({5, 7}, {7, 3}, false);
  EXPECT_TRUE(CheckC(shape, {5, 3}).ok());
  EXPECT_THAT(CheckC(shape, {3, 5}).message(), HasSubstr("D's shape [5, 3]"));
  EXPECT_TRUE(CheckBias(shape, {3}).ok());
  EXPECT_THAT(CheckBias(shape, {1, 3}).message(), HasSubstr("n=3"));
}

}  // namespace
}  // namespace gemmd::cli
