#include "kernels/bench/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/bench/runs.h"

namespace gemmd::kernels::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ChartTest, DrawsABarForEveryMeasuredTime) {
  const std::string svg = Chart(SmallRun());
  EXPECT_THAT(svg, StartsWith("<svg "));
  EXPECT_THAT(svg, HasSubstr("64x4096x7168"));
  EXPECT_THAT(svg, Not(HasSubstr("7x9x100")));  // refused
  // The background, four colours of the legend, and 2 + 4 bars.
  EXPECT_EQ(Count(svg, "<rect "), 1 + 4 + 6);
  EXPECT_EQ(Count(svg, "<text "), Count(svg, "</text>"));
}

TEST(ChartTest, NamesTheMachine) {
  RunResult run = SmallRun();
  run.gpu = "A <b> & c";
  EXPECT_THAT(Chart(run), HasSubstr("A &lt;b&gt; &amp; c, driver 580.159.04"));
}

TEST(ChartTest, AnEmptyRunIsAnEmptyChart) { EXPECT_THAT(Chart(RunResult{}), HasSubstr("</svg>")); }

}  // namespace
}  // namespace gemmd::kernels::bench
