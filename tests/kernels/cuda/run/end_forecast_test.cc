#include "kernels/cuda/run/end_forecast.h"

#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::Microseconds;
using absl::Milliseconds;
using absl::ZeroDuration;

TEST(EndForecastTest, KnowsNothingBeforeTheFirstRun) {
  EndForecast forecast;
  EXPECT_EQ(forecast.usual(), ZeroDuration());
  forecast.Observe(Milliseconds(4));
  EXPECT_EQ(forecast.usual(), Milliseconds(4));
}

TEST(EndForecastTest, FollowsShorterRunsAtOnceAndLongerOnesSlowly) {
  EndForecast forecast;
  forecast.Observe(Milliseconds(4));
  forecast.Observe(Milliseconds(3));
  EXPECT_EQ(forecast.usual(), Milliseconds(3));
  forecast.Observe(Milliseconds(11));
  EXPECT_EQ(forecast.usual(), Milliseconds(4));
  for (int i = 0; i < 100; ++i) forecast.Observe(Milliseconds(11));
  EXPECT_GT(forecast.usual(), Microseconds(10999));
  EXPECT_LE(forecast.usual(), Milliseconds(11));
}

TEST(EndForecastTest, ARunThatTookNoTimeIsOne) {
  EndForecast forecast;
  forecast.Observe(-Microseconds(1));
  EXPECT_GT(forecast.usual(), ZeroDuration());
}

TEST(WaitForTest, WakesBeforeTheEndAndLooksUntilItIsLate) {
  const EndWait wait = WaitFor(Milliseconds(4), Milliseconds(1));
  EXPECT_EQ(wait.sleep, Microseconds(2750));
  EXPECT_EQ(Milliseconds(1) + wait.sleep + wait.look, Microseconds(4000 + 100 + 200));
}

TEST(WaitForTest, LooksAtOnceWhenTheEndIsNear) {
  EXPECT_EQ(WaitFor(Milliseconds(4), Microseconds(3700)).sleep, ZeroDuration());
  EXPECT_EQ(WaitFor(Milliseconds(4), Microseconds(3700)).look, Microseconds(600));
  EXPECT_EQ(WaitFor(Milliseconds(4), Microseconds(4200)).look, Microseconds(100));
}

TEST(WaitForTest, LeavesItToTheDeviceWhatIsUnknownLongOrLate) {
  for (const EndWait& wait :
       {WaitFor(ZeroDuration(), ZeroDuration()), WaitFor(Milliseconds(21), ZeroDuration()),
        WaitFor(Milliseconds(4), Milliseconds(5))}) {
    EXPECT_EQ(wait.sleep, ZeroDuration());
    EXPECT_EQ(wait.look, ZeroDuration());
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
