#include "kernels/bench/ladder_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::kernels::bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr Shape kShape{4096, 4096, 4096};
constexpr double kFlops = 2.0 * 4096 * 4096 * 4096;

LadderRow Row(const std::string& kernel, const std::string& idea, double tflops) {
  LadderRow row{.shape = kShape, .took = kShape, .kernel = kernel, .idea = idea};
  row.outcome = Outcome::kOk;
  row.us = kFlops / tflops * 1e-6;
  row.us_p10 = row.us * 0.99;
  row.us_p90 = row.us * 1.01;
  return row;
}

RunResult LadderRun() {
  RunResult run;
  run.gpu = "A <b> & c";
  LadderRow first = Row("rung_1", "one tile", 1);
  first.took = {128, 128, 64};
  first.us = 2.0;
  LadderRow wrong = Row("rung_4", "wrong one", 1);
  wrong.outcome = Outcome::kWrong;
  wrong.message = "calc_diff 1.0";
  wrong.us = 0;
  LadderRow fp8 = Row("rung_11", "fp8", 900);
  fp8.fp8 = true;
  run.ladder = {first,
                Row("rung_2", "many", 200),
                Row("rung_3", "ring", 300),
                wrong,
                fp8,
                Row("cublaslt_f16", "cuBLASLt FP16", 600)};
  return run;
}

TEST(LadderReportTest, TellsRateGainAndShare) {
  const std::string table = LadderTable(LadderRun());
  EXPECT_THAT(table, HasSubstr("4096x4096x4096"));
  EXPECT_THAT(table, ContainsRegex("rung_3 [^\n]* 2.0% +300 +1.50 x +50.0 %"));
  EXPECT_THAT(table, HasSubstr("one tile (of 128x128x64, all it takes)"));
  EXPECT_THAT(table, ContainsRegex("rung_4 +wrong: calc_diff 1.0"));
  // Of another type than the only peer.
  EXPECT_THAT(table, ContainsRegex("rung_11 [^\n]* 900 +- +-  "));
}

TEST(LadderReportTest, DrawsABarForEveryMeasuredRow) {
  const std::string svg = LadderChart(LadderRun());
  EXPECT_THAT(svg, StartsWith("<svg "));
  int rects = 0;
  for (size_t at = svg.find("<rect "); at != std::string::npos; at = svg.find("<rect ", at + 1)) {
    ++rects;
  }
  EXPECT_EQ(rects, 1 + 5);  // the background, and five that were timed
  EXPECT_THAT(svg, HasSubstr("A &lt;b&gt; &amp; c"));
  EXPECT_THAT(svg, HasSubstr("300   x 1.50"));
  EXPECT_THAT(svg, HasSubstr("of 128x128x64"));
  EXPECT_THAT(svg, Not(HasSubstr("wrong one")));
}

TEST(LadderReportTest, JsonKeepsARow) {
  const RunResult run = LadderRun();
  const absl::StatusOr<RunResult> read = FromJson(ToJson(run));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->ladder.size(), run.ladder.size());
  for (size_t i = 0; i < run.ladder.size(); ++i) {
    const LadderRow& x = run.ladder[i];
    const LadderRow& y = read->ladder[i];
    EXPECT_EQ(x.shape, y.shape);
    EXPECT_EQ(x.took, y.took);
    EXPECT_EQ(x.kernel, y.kernel);
    EXPECT_EQ(x.idea, y.idea);
    EXPECT_EQ(x.outcome, y.outcome);
    EXPECT_EQ(x.message, y.message);
    EXPECT_EQ(x.fp8, y.fp8);
    EXPECT_EQ(x.us, y.us);
  }
}

}  // namespace
}  // namespace gemmd::kernels::bench
