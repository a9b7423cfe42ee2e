#include "kernels/bench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"

namespace gemmd::kernels::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<Options> Parse(const std::vector<const char*>& args) { return ParseOptions(args); }

TEST(OptionsTest, NoArgumentsMeasureTheDenseSuite) {
  const absl::StatusOr<Options> o = Parse({});
  ASSERT_TRUE(o.ok());
  EXPECT_EQ(o->mode, Mode::kMeasure);
  EXPECT_EQ(o->suite, "dense44");
  EXPECT_EQ(o->repeats, 24);
  EXPECT_EQ(o->places, 8);
}

TEST(OptionsTest, TakesValuesAfterASpaceOrAnEqualsSign) {
  const absl::StatusOr<Options> o =
      Parse({"--suite=random", "--count", "5", "--only", "tiled,skinny", "--budget-s=2.5",
             "--no-peers", "--rest-ms=250", "--tune", "--out", "t.json"});
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_EQ(o->suite, "random");
  EXPECT_EQ(o->count, 5);
  EXPECT_THAT(o->only, ElementsAre("tiled", "skinny"));
  EXPECT_EQ(o->budget_s, 2.5);
  EXPECT_FALSE(o->peers);
  EXPECT_EQ(o->rest_ms, 250);
  EXPECT_TRUE(o->tune);
  EXPECT_EQ(o->out, "t.json");
}

TEST(OptionsTest, CompareTakesTwoFiles) {
  const absl::StatusOr<Options> o = Parse({"--compare", "a.json", "b.json"});
  ASSERT_TRUE(o.ok());
  EXPECT_EQ(o->mode, Mode::kCompare);
  EXPECT_EQ(o->old_json, "a.json");
  EXPECT_EQ(o->new_json, "b.json");
  EXPECT_FALSE(Parse({"--compare", "a.json"}).ok());
}

TEST(OptionsTest, ChartNeedsItsSource) {
  EXPECT_EQ(Parse({"--chart", "a.svg", "--from", "a.json"})->mode, Mode::kChart);
  EXPECT_FALSE(Parse({"--chart", "a.svg"}).ok());
}

TEST(OptionsTest, RowsAreARange) {
  const absl::StatusOr<Options> o = Parse({"--rows", "65-512", "--flush-mib", "160"});
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_FALSE(o->rows.contains(64));
  EXPECT_TRUE(o->rows.contains(65));
  EXPECT_TRUE(o->rows.contains(512));
  EXPECT_FALSE(o->rows.contains(513));
  EXPECT_EQ(o->flush_mib, 160);
  EXPECT_TRUE(Parse({})->rows.contains(1 << 20));
}

TEST(OptionsTest, OperandsAreE4m3UnlessAskedFor) {
  EXPECT_EQ(Parse({})->dtype, DType::kE4M3);
  EXPECT_EQ(Parse({"--dtype", "bf16"})->dtype, DType::kBF16);
  EXPECT_EQ(Parse({"--dtype", "f16"})->dtype, DType::kF16);
  EXPECT_EQ(Parse({"--dtype", "i8"})->dtype, DType::kI8);
  EXPECT_FALSE(Parse({"--dtype", "e5m2"}).ok());
  EXPECT_TRUE(Parse({})->block_scales);
  EXPECT_FALSE(Parse({"--dtype", "i8"})->block_scales);
  EXPECT_TRUE(Parse({"--dtype", "i8-block"})->block_scales);
  EXPECT_EQ(Parse({"--dtype", "e4m3-row"})->dtype, DType::kE4M3);
  EXPECT_FALSE(Parse({"--dtype", "e4m3-row"})->block_scales);
}

TEST(OptionsTest, QuickIsOfASweepThatMeasures) {
  EXPECT_TRUE(Parse({"--sweep", "--quick"})->quick);
  EXPECT_FALSE(Parse({"--quick"}).ok());
  EXPECT_FALSE(Parse({"--quick", "--sweep", "--check-only"}).ok());
}

TEST(OptionsTest, FeaturesNeedTheirSource) {
  EXPECT_EQ(Parse({"--features", "a.csv", "--from", "a.json"})->mode, Mode::kFeatures);
  EXPECT_FALSE(Parse({"--features", "a.csv"}).ok());
}

TEST(OptionsTest, ErrorsNameTheArgument) {
  const std::vector<std::vector<const char*>> bad = {
      {"--repeats", "0"},  {"--places", "0"},  {"--repeats", "x"},   {"--repeats"},
      {"--frob"},          {"--timer", "sun"}, {"--budget-s", "-1"}, {"--sweep=yes"},
      {"stray"},           {"--count=1e9"},    {"--device", "-1"},   {"--top", "0"},
      {"--rest-ms", "-5"}, {"--rows", "9-2"},  {"--rows", "65"},     {"--flush-mib", "0"},
      {"--dtype", "f32"},
  };
  for (const auto& args : bad) {
    const absl::StatusOr<Options> o = Parse(args);
    ASSERT_FALSE(o.ok()) << args[0];
    const std::string name = std::vector<std::string>(absl::StrSplit(args[0], '='))[0];
    EXPECT_THAT(std::string(o.status().message()), HasSubstr(name));
  }
}

TEST(OptionsTest, RefusesCombinationsWithoutMeaning) {
  EXPECT_FALSE(Parse({"--kernel", "x", "--sweep"}).ok());
  EXPECT_FALSE(Parse({"--check-only", "--tune"}).ok());
  EXPECT_FALSE(Parse({"--pool-times"}).ok());
  EXPECT_TRUE(Parse({"--pool-times", "--sweep"})->pool_times);
}

TEST(OptionsTest, HelpNamesEveryOption) {
  for (const char* name :
       {"--suite",   "--shapes",     "--count",    "--seed",      "--tuning",  "--no-table",
        "--kernel",  "--only",       "--skip",     "--top",       "--repeats", "--places",
        "--bitwise", "--check-only", "--no-peers", "--budget-s",  "--timer",   "--library-dir",
        "--device",  "--json",       "--commit",   "--date",      "--sweep",   "--tune",
        "--out",     "--rest-ms",    "--quantize", "--list",      "--compare", "--chart",
        "--from",    "--cold-code",  "--no-bf16",  "--pool-times"}) {
    EXPECT_THAT(std::string(HelpText()), HasSubstr(name));
  }
}

}  // namespace
}  // namespace gemmd::kernels::bench
