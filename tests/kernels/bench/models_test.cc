#include "kernels/bench/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace gemmd::kernels::bench {
namespace {

using ::testing::Contains;
using ::testing::Not;

constexpr Half kHalves[] = {Half::kFit, Half::kJudge};
constexpr Alignment kAlignments[] = {Alignment::kOf128, Alignment::kOdd};

TEST(ModelsTest, AtLeast24ModelsInTwoHalvesOfLikeSize) {
  std::set<std::string_view> names;
  int fit = 0;
  for (const Model& model : Models()) {
    EXPECT_TRUE(names.insert(model.name).second) << model.name;
    EXPECT_GE(model.layers.size(), 4) << model.name;
    fit += model.half == Half::kFit;
  }
  EXPECT_GE(names.size(), 24);
  EXPECT_NEAR(fit, names.size() / 2.0, 1);
}

TEST(ModelsTest, LayersFollowFromThePublishedConfig) {
  const std::vector<Weights> fit = WeightsOf(Half::kFit, Alignment::kOf128);
  for (const Weights& w : {Weights{10240, 8192}, {8192, 8192}, {57344, 8192}, {8192, 28672}}) {
    EXPECT_THAT(fit, Contains(w)) << w.n << "x" << w.k;  // Llama-3.1-70B
  }
  for (const Weights& w : {Weights{2112, 7168}, {24576, 1536}, {32768, 512}}) {
    const Alignment alignment = w.n % 128 == 0 ? Alignment::kOf128 : Alignment::kOdd;
    EXPECT_THAT(WeightsOf(Half::kFit, alignment), Contains(w)) << w.n;  // DeepSeek-V3
  }
  // Falcon-7B: 71 heads of 64 and one of keys and values, a feed-forward without gates.
  EXPECT_THAT(WeightsOf(Half::kFit, Alignment::kOdd), Contains(Weights{4672, 4544}));
  EXPECT_THAT(WeightsOf(Half::kFit, Alignment::kOdd), Contains(Weights{18176, 4544}));
}

TEST(ModelsTest, RanksDivideOutputsOfTheFirstLayersAndInputsOfTheLast) {
  const std::vector<Weights> fit = WeightsOf(Half::kFit, Alignment::kOf128);
  for (const int64_t ranks : {2, 4, 8}) {
    EXPECT_THAT(fit, Contains(Weights{57344 / ranks, 8192}));  // gate_up of Llama-3.1-70B
    EXPECT_THAT(fit, Contains(Weights{8192, 28672 / ranks}));  // down
    EXPECT_THAT(fit, Not(Contains(Weights{8192 / ranks, 28672})));
  }
}

TEST(ModelsTest, TheHalfForJudgingHasNoWeightsOfTheOther) {
  for (const Alignment alignment : kAlignments) {
    const std::vector<Weights> fit = WeightsOf(Half::kFit, alignment);
    const std::vector<Weights> judge = WeightsOf(Half::kJudge, alignment);
    for (const Weights& w : judge) EXPECT_THAT(fit, Not(Contains(w))) << w.n << "x" << w.k;
    // Llama-2-13B and Qwen2.5-32B, which is in the other half, both have 5120 x 5120.
    EXPECT_THAT(judge, Not(Contains(Weights{5120, 5120})));
  }
  EXPECT_GT(WeightsOf(Half::kJudge, Alignment::kOf128).size(), 100);
  EXPECT_GT(WeightsOf(Half::kFit, Alignment::kOf128).size(), 100);
}

TEST(ModelsTest, WeightsAreWhatKernelsTakeAndApartByAlignment) {
  for (const Half half : kHalves) {
    for (const Weights& w : WeightsOf(half, Alignment::kOf128)) {
      EXPECT_EQ(w.n % 128 + w.k % 128, 0) << w.n << "x" << w.k;
      EXPECT_LE(w.n * w.k, kMaxWeights);
    }
    const std::vector<Weights> odd = WeightsOf(half, Alignment::kOdd);
    EXPECT_GT(odd.size(), 20);
    for (const Weights& w : odd) {
      EXPECT_EQ(w.k % 16 + w.n % 8, 0) << w.n << "x" << w.k;
      EXPECT_NE(w.n % 128 + w.k % 128, 0) << w.n << "x" << w.k;
    }
  }
}

TEST(ModelsTest, RowsGoFrom1To4096WithOddOnesInEveryRange) {
  EXPECT_EQ(ModelRows().front(), 1);
  EXPECT_EQ(ModelRows().back(), 4096);
  EXPECT_TRUE(std::is_sorted(ModelRows().begin(), ModelRows().end()));
  for (const RowRange& range : kRowRanges) {
    EXPECT_TRUE(std::any_of(ModelRows().begin(), ModelRows().end(), [&](int64_t m) {
      return m >= range.least && m <= range.most && m % 2 == 1;
    })) << range.least;
  }
}

TEST(ModelsTest, ASampleIsTheFirstOfALongerOneAndHasNoShapeTwice) {
  const std::vector<Weights> weights = WeightsOf(Half::kJudge, Alignment::kOf128);
  const std::vector<Shape> few = ModelShapes(weights, 50, 3);
  std::vector<Shape> many = ModelShapes(weights, 400, 3);
  ASSERT_EQ(few.size(), 50);
  ASSERT_EQ(many.size(), 400);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(ModelShapes(weights, 50, 4), few);
  std::set<std::string> names;
  for (const Shape& shape : many) names.insert(ToString(shape));
  EXPECT_EQ(names.size(), 400);
}

TEST(ModelsTest, ASampleTakesTheRangesOfRowsInTurns) {
  const std::vector<Shape> shapes = ModelShapes(WeightsOf(Half::kFit, Alignment::kOf128), 40, 1);
  for (size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_GE(shapes[i].m, kRowRanges[i % 4].least) << i;
    EXPECT_LE(shapes[i].m, kRowRanges[i % 4].most) << i;
    EXPECT_LE(shapes[i].flops(), 1099511627776.0);
  }
}

TEST(ModelsTest, ASampleLargerThanAllIsAll) {
  const std::vector<Weights> one = {{128, 256}};
  EXPECT_EQ(ModelShapes(one, 1000, 1).size(), ModelRows().size());
  EXPECT_TRUE(ModelShapes({}, 10, 1).empty());
}

TEST(ModelsTest, WeightsAreFoundInAModelOfTheirHalf) {
  for (const Half half : {Half::kFit, Half::kJudge}) {
    for (const Weights& weights : WeightsOf(half, Alignment::kOf128)) {
      EXPECT_NE(ModelWith(half, weights), "") << weights.n << "x" << weights.k;
      if (half == Half::kJudge) {
        EXPECT_EQ(ModelWith(Half::kFit, weights), "") << weights.n << "x" << weights.k;
      }
    }
  }
  EXPECT_EQ(ModelWith(Half::kFit, {1, 1}), "");
}

}  // namespace
}  // namespace gemmd::kernels::bench
