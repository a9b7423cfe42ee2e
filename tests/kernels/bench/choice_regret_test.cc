#include "kernels/bench/choice_regret.h"

#include <gtest/gtest.h>

namespace gemmd::kernels::bench {
namespace {

TEST(ChoiceRegretTest, IsTheShareThatTheChosenOneTakesLonger) {
  EXPECT_NEAR(ChoiceRegret(103, {120, 100, 103.5}), 0.03, 1e-12);
  EXPECT_EQ(ChoiceRegret(100, {120, 101}), 0)
      << "the choice is the best, measured once more or not";
}

TEST(ChoiceRegretTest, LeavesOutKernelsWithoutATime) {
  EXPECT_NEAR(ChoiceRegret(110, {0, 100, -1}), 0.1, 1e-12);
  EXPECT_EQ(ChoiceRegret(0, {}), 0);
}

TEST(ChoiceRegretTest, SummaryHasTheMeanAndTheMost) {
  const RegretSummary all = SummaryOf({0, 0.02, 0.07});
  EXPECT_NEAR(all.mean, 0.03, 1e-12);
  EXPECT_EQ(all.most, 0.07);
}

}  // namespace
}  // namespace gemmd::kernels::bench
