#include "kernels/bench/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/bench/runs.h"

namespace gemmd::kernels::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TableTest, ARowHasTimesRatiosAndTheKernel) {
  const std::string row = TableRow(SmallRun().shapes[0], 1500, 0);
  EXPECT_THAT(row, AllOf(HasSubstr("10.00"), HasSubstr("8.00"), HasSubstr("80.0%"),
                         HasSubstr("1.200"), HasSubstr("sm90_fp8_skinny_m64n64s10 (model)")));
  EXPECT_EQ(std::count(row.begin(), row.end(), '\n'), 1);
}

TEST(TableTest, ARefusedShapeShowsWhy) {
  EXPECT_THAT(TableRow(SmallRun().shapes[2], 1500, 0),
              AllOf(HasSubstr("7x9x100"), HasSubstr("refused: k=100: rows of a")));
}

TEST(TableTest, ASweepListsItsFastest) {
  ShapeResult r = SmallRun().shapes[0];
  r.variants_timed = 90;
  r.best = {{"first", 8}, {"second", 9}, {"third", 10}};
  const std::string row = TableRow(r, 1500, 2);
  EXPECT_THAT(row, AllOf(HasSubstr("of 90 variants: choice  1.250"), HasSubstr("second"),
                         Not(HasSubstr("third"))));
}

TEST(TableTest, QuantizeIsHeldAgainstCopying) {
  RunResult run = SmallRun();
  run.copy_gb_s = 4000;
  run.quantize = {{4096, 7168, "1x128", true, 0.026, 25, 24.5, 26, 20}};
  // 89 MB in 25 us.
  EXPECT_THAT(QuantizeTable(run), AllOf(HasSubstr("4096x7168"), HasSubstr("3560"),
                                        HasSubstr("89.0%"), Not(HasSubstr("WRONG"))));
  run.quantize[0].right = false;
  EXPECT_THAT(QuantizeTable(run), HasSubstr("WRONG"));
}

TEST(TableTest, TheSummaryCountsOutcomes) {
  const std::string text = SummaryTable(SmallRun());
  EXPECT_THAT(text, HasSubstr("4 shapes: 2 ok, 0 wrong, 1 refused, 0 failed, 1 skipped"));
  EXPECT_THAT(text, HasSubstr("m<=128"));
}

}  // namespace
}  // namespace gemmd::kernels::bench
