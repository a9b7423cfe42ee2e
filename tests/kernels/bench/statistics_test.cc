#include "kernels/bench/statistics.h"

#include <gtest/gtest.h>

namespace gemmd::kernels::bench {
namespace {

TEST(StatisticsTest, PercentileInterpolatesBetweenNeighbours) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_DOUBLE_EQ(Percentile(values, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile(values, 1), 40);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(Percentile(values, 0.1), 13);
  EXPECT_DOUBLE_EQ(Median({3, 1, 2}), 2);
}

TEST(StatisticsTest, FractionsBeyondTheEndsAreTheEnds) {
  EXPECT_DOUBLE_EQ(Percentile({5, 6}, -1), 5);
  EXPECT_DOUBLE_EQ(Percentile({5, 6}, 2), 6);
}

TEST(StatisticsTest, NothingHasTheMeanZero) {
  EXPECT_EQ(Percentile({}, 0.5), 0);
  EXPECT_EQ(Mean({}), 0);
  EXPECT_EQ(GeometricMean({}), 0);
}

TEST(StatisticsTest, GeometricMeanOfARatioAndItsInverseIsOne) {
  EXPECT_DOUBLE_EQ(GeometricMean({0.5, 2}), 1);
  EXPECT_NEAR(GeometricMean({1, 8}), 2.8284271247, 1e-9);
  EXPECT_DOUBLE_EQ(Mean({1, 2, 6}), 3);
}

}  // namespace
}  // namespace gemmd::kernels::bench
