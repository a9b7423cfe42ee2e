#include "kernels/bench/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/bench/runs.h"

namespace gemmd::kernels::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CompareTest, ARunAgainstItselfIsUnchanged) {
  const Comparison c = Compare(SmallRun(), SmallRun());
  EXPECT_EQ(c.compared, 2);
  EXPECT_EQ(c.regressions, 0);
  EXPECT_NEAR(c.speedup, 1, 1e-12);
  EXPECT_THAT(c.text, Not(HasSubstr("REGRESSION")));
}

TEST(CompareTest, FlagsAShapeThatBecameMoreThanThreePercentSlower) {
  RunResult now = SmallRun();
  now.shapes[0].us = 10.29;
  EXPECT_EQ(Compare(SmallRun(), now).regressions, 0);
  now.shapes[0].us = 10.31;
  const Comparison c = Compare(SmallRun(), now);
  EXPECT_EQ(c.regressions, 1);
  EXPECT_THAT(c.text, HasSubstr("REGRESSION"));
}

TEST(CompareTest, AResultThatIsNoLongerRightIsARegression) {
  RunResult now = SmallRun();
  now.shapes[1].outcome = Outcome::kWrong;
  EXPECT_EQ(Compare(SmallRun(), now).regressions, 1);
  now.shapes[1].outcome = Outcome::kSkipped;
  EXPECT_EQ(Compare(SmallRun(), now).regressions, 0);
}

TEST(CompareTest, ScalesByTensorWiseWhenBothHaveIt) {
  RunResult now = SmallRun();
  for (ShapeResult& r : now.shapes) {  // a machine of half the clock
    r.us *= 2;
    r.cublaslt_tensorwise_us *= 2;
  }
  const Comparison c = Compare(SmallRun(), now);
  EXPECT_NEAR(c.speedup, 0.5, 1e-12);
  EXPECT_THAT(c.text, HasSubstr("scaled by tensor-wise cuBLASLt 1.000"));
}

TEST(CompareTest, SaysWhenAnotherKernelWasChosenOrTheGpuDiffers) {
  RunResult now = SmallRun();
  now.shapes[0].kernel = "other";
  now.gpu = "NVIDIA H100";
  const Comparison c = Compare(SmallRun(), now);
  EXPECT_THAT(c.text, HasSubstr("sm90_fp8_skinny_m64n64s10 -> other"));
  EXPECT_THAT(c.text, HasSubstr("differ in GPU"));
}

TEST(CompareTest, RunsWithoutACommonShapeCompareNothing) {
  RunResult now = SmallRun();
  now.shapes = {Timed({3, 3, 3}, 1)};
  EXPECT_EQ(Compare(SmallRun(), now).compared, 0);
}

}  // namespace
}  // namespace gemmd::kernels::bench
