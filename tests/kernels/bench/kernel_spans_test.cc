#include "kernels/bench/kernel_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::kernels::bench {
namespace {

using ::testing::DoubleEq;
using ::testing::SizeIs;

constexpr char kFill[] = "_ZN1a9MovePacksEv", kRoute[] = "_ZN1a5RouteEv", kSum[] = "_ZN1a3SumEv";

TEST(KernelSpansTest, ANameIsTheFunctionsAlone) {
  EXPECT_EQ(ShortName("_ZN5gemmd7kernels4cuda10Fp8GroupedILm1ELm2ELb0EEEvi"), "Fp8Grouped");
  EXPECT_EQ(ShortName("_ZN5gemmd4cuda12_GLOBAL__N_15RouteENS0_4ArgsE"), "Route");
  EXPECT_EQ(ShortName("plain"), "plain");
}

TEST(KernelSpansTest, AKernelAddsWhatItEndsBehindTheOnesInFront) {
  const RunParts parts = PartsOfRuns({{kFill, 0, 100},
                                      {kRoute, 1000, 5000},
                                      {kSum, 2000, 9000},
                                      {kFill, 10000, 11000},
                                      {kSum, 21000, 26000},
                                      {kRoute, 20000, 22000}},
                                     "Move");
  ASSERT_THAT(parts.kernels, SizeIs(2));
  EXPECT_THAT(parts.us, DoubleEq(7));
  EXPECT_EQ(parts.kernels[0].name, "Route");
  EXPECT_THAT(parts.kernels[0].added_us, DoubleEq(3));
  EXPECT_EQ(parts.kernels[1].name, "Sum");
  EXPECT_THAT(parts.kernels[1].start_us, DoubleEq(1));
  EXPECT_THAT(parts.kernels[1].end_us, DoubleEq(7));
  EXPECT_THAT(parts.kernels[1].added_us, DoubleEq(4));
}

TEST(KernelSpansTest, RunsOfOtherNumbersOfKernelsAreLeftOut) {
  const RunParts parts = PartsOfRuns({{kSum, 0, 1},
                                      {kFill, 10, 11},
                                      {kRoute, 20, 1020},
                                      {kSum, 2000, 9000},
                                      {kFill, 10000, 11000},
                                      {kSum, 20000, 21000}},
                                     "Move");
  ASSERT_THAT(parts.kernels, SizeIs(1));
  EXPECT_THAT(parts.us, DoubleEq(1));
}

TEST(KernelSpansTest, WithoutARunThereAreNoParts) {
  EXPECT_THAT(PartsOfRuns({{kSum, 0, 1}}, "Move").kernels, SizeIs(0));
  EXPECT_THAT(PartsOfRuns({{kFill, 0, 1}}, "Move").kernels, SizeIs(0));
}

}  // namespace
}  // namespace gemmd::kernels::bench
