#include "kernels/bench/summary.h"

#include <gtest/gtest.h>

#include "tests/kernels/bench/runs.h"

namespace gemmd::kernels::bench {
namespace {

const Group* Find(const Summary& summary, const std::string& name) {
  for (const Group& group : summary.groups) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

TEST(SummaryTest, GroupsByM) {
  const Summary summary = Summarize(SmallRun());
  ASSERT_NE(Find(summary, "m<=128"), nullptr);
  EXPECT_EQ(Find(summary, "m<=128")->shapes, 1);
  EXPECT_NEAR(Find(summary, "m<=128")->tensorwise_ratio, 1.2, 1e-12);
  EXPECT_NEAR(Find(summary, "m<=128")->share_of_floor, 0.8, 1e-12);
  EXPECT_NEAR(Find(summary, "m>=4096")->block_ratio, 1.1, 1e-12);
  EXPECT_EQ(Find(summary, "m=512"), nullptr);
  EXPECT_EQ(Find(summary, "all")->shapes, 2);
}

TEST(SummaryTest, APeerThatRefusedIsLeftOutOfItsMean) {
  EXPECT_EQ(Find(Summarize(SmallRun()), "m<=128")->block_ratio, 0);
  EXPECT_NEAR(Find(Summarize(SmallRun()), "all")->block_ratio, 1.1, 1e-12);
}

TEST(SummaryTest, AWrongResultCountsNowhere) {
  RunResult run = SmallRun();
  run.shapes[0].outcome = Outcome::kWrong;
  EXPECT_EQ(Find(Summarize(run), "m<=128"), nullptr);
  EXPECT_EQ(Find(Summarize(run), "all")->shapes, 1);
}

TEST(SummaryTest, ChoiceAndModelAreHeldAgainstThePoolsBest) {
  RunResult run = SmallRun();
  run.shapes[0].best = {{"fast", 8}, {"chosen", 10}};
  run.shapes[0].model_us = 12;
  const Summary summary = Summarize(run);
  EXPECT_NEAR(Find(summary, "m<=128")->choice_ratio, 1.25, 1e-12);
  EXPECT_NEAR(Find(summary, "m<=128")->model_ratio, 1.5, 1e-12);
  EXPECT_EQ(Find(summary, "m>=4096")->choice_ratio, 0);
}

TEST(SummaryTest, TheFloorOfABigShapeIsComputeAtTheBestRateSeen) {
  const RunResult run = SmallRun();
  const double rate = Summarize(run).best_tensorwise_tflops;
  EXPECT_NEAR(rate, run.shapes[1].shape.flops() / 160 * 1e-6, 1e-9);
  EXPECT_NEAR(ShareOfFloor(run.shapes[1], rate), 0.8, 1e-12);
  EXPECT_NEAR(ShareOfFloor(run.shapes[0], rate), 0.8, 1e-12);  // memory: 8 us of 10
  EXPECT_NEAR(ShareOfFloor(run.shapes[1], 0), 0.15, 1e-12);
  EXPECT_EQ(ShareOfFloor(run.shapes[2], rate), 0);
}

}  // namespace
}  // namespace gemmd::kernels::bench
