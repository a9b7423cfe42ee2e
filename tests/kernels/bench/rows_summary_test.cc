#include "kernels/bench/rows_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/bench/runs.h"

namespace gemmd::kernels::bench {
namespace {

using ::testing::HasSubstr;

// Of a sweep: the pool's best takes `best`, the choice 10 and the model's kernel `model`.
ShapeResult Swept(int64_t m, double best, double model) {
  ShapeResult result = Timed({m, 4096, 7168}, 10);
  result.best = {{"best", best}, {"chosen", 10}};
  result.model_us = model;
  return result;
}
RunResult RunOf(std::vector<ShapeResult> shapes) {
  RunResult run = SmallRun();
  run.shapes = std::move(shapes);
  return run;
}

TEST(RowsSummaryTest, RangesOfRowsAndThenAll) {
  const auto rows = SummarizeRows(RunOf({Swept(1, 10, 10), Swept(16, 10, 10), Swept(65, 10, 10)}));
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0].rows.most, 16);
  EXPECT_EQ(rows[0].shapes, 2);
  EXPECT_EQ(rows[1].rows.least, 65);
  EXPECT_EQ(rows[2].shapes, 3);
}

TEST(RowsSummaryTest, RegretIsWhatIsLongerThanThePoolsBest) {
  const auto rows = SummarizeRows(RunOf({Swept(1, 10, 10), Swept(2, 8, 12)}));
  EXPECT_NEAR(rows[0].choice.mean, 0.125, 1e-12);
  EXPECT_NEAR(rows[0].choice.most, 0.25, 1e-12);
  EXPECT_NEAR(rows[0].model.mean, 0.25, 1e-12);
  EXPECT_NEAR(rows[0].model.most, 0.5, 1e-12);
  EXPECT_NEAR(rows[0].model.p99, 0.495, 1e-12);
  EXPECT_NEAR(rows[0].tensorwise_ratio, 1.2, 1e-12);
  EXPECT_NEAR(rows[0].model_tensorwise_ratio, 1.0954, 1e-4);  // 12/10 and 12/12
}

TEST(RowsSummaryTest, WhatWasNotMeasuredCountsNowhere) {
  ShapeResult wrong = Swept(1, 10, 10);
  wrong.outcome = Outcome::kWrong;
  EXPECT_TRUE(SummarizeRows(RunOf({wrong})).empty());
  const auto rows = SummarizeRows(RunOf({Timed({1, 4096, 7168}, 10)}));
  EXPECT_EQ(rows[0].choice.shapes, 0);
  EXPECT_EQ(rows[0].least_block_ratio, 0);
  EXPECT_THAT(RowsTable(RunOf({Timed({1, 4096, 7168}, 10)})), HasSubstr("1..16"));
}

TEST(RowsSummaryTest, TheLeastBlockRatioIsTheShapeThatIsTheFurthestBehind) {
  ShapeResult ahead = Swept(1, 10, 10);
  ahead.cublaslt_block_us = 15;
  ShapeResult behind = Swept(2, 10, 10);
  behind.cublaslt_block_us = 9;
  EXPECT_NEAR(SummarizeRows(RunOf({ahead, behind}))[0].least_block_ratio, 0.9, 1e-12);
}

}  // namespace
}  // namespace gemmd::kernels::bench
