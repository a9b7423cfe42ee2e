#include "kernels/bench/suites.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/bench/models.h"

namespace gemmd::kernels::bench {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(SuitesTest, Dense44HasEveryBatchOfEveryLayer) {
  const std::vector<Shape> shapes = Dense44();
  EXPECT_EQ(shapes.size(), 44);
  EXPECT_EQ(std::count_if(shapes.begin(), shapes.end(), [](auto& s) { return s.m <= 128; }), 28);
  EXPECT_EQ(std::count_if(shapes.begin(), shapes.end(), [](auto& s) { return s.m == 512; }), 7);
  EXPECT_EQ(std::count_if(shapes.begin(), shapes.end(), [](auto& s) { return s.m >= 4096; }), 9);
  EXPECT_THAT(shapes, Contains(Shape{1, 576, 7168}));
  EXPECT_THAT(shapes, Contains(Shape{8192, 8192, 8192}));
}

TEST(SuitesTest, RandomShapesAreWithinTheirBounds) {
  const std::vector<Shape> shapes = RandomShapes(300, 7);
  ASSERT_EQ(shapes.size(), 300);
  for (const Shape& s : shapes) {
    EXPECT_GE(s.m, 1);
    EXPECT_LE(s.m, 8192);
    EXPECT_EQ(s.n % 16, 0);
    EXPECT_EQ(s.k % 16, 0);
    EXPECT_GE(std::min(s.n, s.k), 16);
    EXPECT_LE(std::max(s.n, s.k), 8192);
  }
}

TEST(SuitesTest, RandomShapesCoverPartialBlocksOfKAndSmallM) {
  const std::vector<Shape> shapes = RandomShapes(300, 7);
  EXPECT_GT(std::count_if(shapes.begin(), shapes.end(), [](auto& s) { return s.k % 128 != 0; }),
            100);
  EXPECT_GT(std::count_if(shapes.begin(), shapes.end(), [](auto& s) { return s.m <= 128; }), 100);
}

TEST(SuitesTest, RandomShapesAreFewEnoughFlopsForSeconds) {
  double flops = 0;
  for (const Shape& s : RandomShapes(300, 7)) flops += s.flops();
  // 100 timed and checked calls of each at 200 TFLOP/s: half a minute would be 6e15.
  EXPECT_LT(100 * flops, 6e15);
}

TEST(SuitesTest, ASeedNamesTheSameShapes) {
  EXPECT_EQ(RandomShapes(50, 3), RandomShapes(50, 3));
  EXPECT_NE(RandomShapes(50, 3), RandomShapes(50, 4));
}

TEST(SuitesTest, OddHasTheShapesThatBrokeOthers) {
  const std::vector<Shape> shapes = OddShapes();
  EXPECT_THAT(shapes, Contains(Shape{7, 151674, 7168}));
  EXPECT_THAT(shapes, Contains(Shape{129, 2112, 127}));
  EXPECT_THAT(shapes, Contains(Shape{1, 1, 1}));
  EXPECT_THAT(shapes, Contains(Shape{0, 576, 128}));
}

TEST(SuitesTest, SuiteRefusesAnUnknownName) {
  EXPECT_EQ(Suite("dense44", 1, 1)->size(), 44);
  EXPECT_EQ(Suite("random", 5, 1)->size(), 5);
  EXPECT_EQ(Suite("ladder", 1, 1)->at(0), (Shape{4096, 4096, 4096}));
  EXPECT_THAT(std::string(Suite("dense", 1, 1).status().message()), HasSubstr("dense44"));
}

TEST(SuitesTest, ParsesShapes) {
  EXPECT_THAT(*ParseShapes("64x4096x7168,0x1x2"),
              ElementsAre(Shape{64, 4096, 7168}, Shape{0, 1, 2}));
}

TEST(SuitesTest, ModelsComeByHalfAndByAlignment) {
  const auto size = [](std::string_view name) { return Suite(name, 100000, 1)->size(); };
  EXPECT_GT(size("models-fit"), 3000);
  EXPECT_GT(size("models-judge"), 3000);
  EXPECT_EQ(size("models"), size("models-fit") + size("models-judge"));
  EXPECT_EQ(size("models-odd"), size("models-odd-fit") + size("models-odd-judge"));
  EXPECT_EQ(Suite("models-judge", 30, 2)->size(), 30);
  for (const char* name : {"models-", "models-fit-odd", "models-judged", "model", "models-odd-"}) {
    EXPECT_EQ(Suite(name, 1, 1).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(SuitesTest, BroadShapesAreOfTheirHalfOrOfNoModel) {
  for (const Half half : {Half::kFit, Half::kJudge}) {
    const bool fit = half == Half::kFit;
    const char* name = fit ? "broad-fit" : "broad-judge";
    const std::vector<Shape> shapes = *Suite(name, 400, 1);
    ASSERT_EQ(shapes.size(), 400);
    EXPECT_EQ(shapes, *Suite(name, 400, 1)) << "a seed names the same shapes";
    int of_models = 0, edges = 0;
    for (const Shape& s : shapes) {
      const bool own = !ModelWith(half, {s.n, s.k}).empty();
      EXPECT_TRUE(own || ModelWith(fit ? Half::kJudge : Half::kFit, {s.n, s.k}).empty());
      EXPECT_THAT(Dense44(), Not(Contains(s)));
      of_models += own;
      edges += s.m > 64 && s.m % 16 == 1;
    }
    EXPECT_GT(of_models, 200) << name;
    EXPECT_LT(of_models, 350) << name;
    EXPECT_GT(edges, 20) << name << ": rows just over a tile";
  }
}

TEST(SuitesTest, NarrowShapesAreFewColumnsFewKSmallOrLong) {
  std::vector<Shape> seen;
  for (const char* name : {"narrow-fit", "narrow-judge"}) {
    const std::vector<Shape> shapes = *Suite(name, 400, 1);
    ASSERT_EQ(shapes.size(), 400);
    EXPECT_EQ(shapes, *Suite(name, 400, 1)) << "a seed names the same shapes";
    const Half other = name == std::string_view("narrow-fit") ? Half::kJudge : Half::kFit;
    int few_columns = 0, few_k = 0, small = 0, many_rows = 0;
    for (const Shape& s : shapes) {
      EXPECT_TRUE(s.n <= 512 || s.k <= 512 || (s.n <= 1536 && s.k <= 1536) || s.m > 4096);
      EXPECT_EQ(s.n % 16, 0);
      EXPECT_EQ(s.k % 16, 0);
      EXPECT_TRUE(ModelWith(other, {s.n, s.k}).empty());
      EXPECT_THAT(seen, Not(Contains(s))) << "the other half's";
      few_columns += s.n <= 64;
      few_k += s.k <= 64;
      small += s.n <= 1536 && s.k <= 1536;
      many_rows += s.m > 8192;
    }
    for (const int count : {few_columns, few_k, small, many_rows}) EXPECT_GT(count, 20) << name;
    seen = shapes;
  }
}

TEST(SuitesTest, RefusesWhatIsNoShape) {
  for (const char* text :
       {"", "64x4096", "1x2x3x4", "-1x2x3", "ax2x3", "1x2x3,", "1x2x4294967296"}) {
    EXPECT_EQ(ParseShapes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace gemmd::kernels::bench
