// Choose: experts and weights by their definition in float64. Where two experts' scores are nearer
// than FP32 tells apart, and not equal, a token's choice is left out.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/scene.h"

namespace gemmd::kernels::contract {
namespace {

constexpr DType kLogitTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr double kTold = 2e-6;  // of the larger one: how far FP32 tells scores apart

struct Choice {
  std::vector<double> experts, weights;
  bool told = true;  // whether no two scores that decide are too near
};

// Places of the `count` largest, of equal ones the first; NaN is left out. Their order is to be
// told, or with `as_set` only which they are.
std::vector<int64_t> Largest(const std::vector<double>& values, int64_t count, bool as_set,
                             bool& told) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isnan(values[i])) order.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t x, int64_t y) { return values[x] > values[y]; });
  const auto there = static_cast<int64_t>(order.size());
  for (int64_t i = as_set ? count - 1 : 0; i < std::min(count, there - 1); ++i) {
    const double apart = values[order[i]] - values[order[i + 1]];
    const double size = std::max(std::abs(values[order[i]]), std::abs(values[order[i + 1]]));
    if (apart > 0 && apart < kTold * size) told = false;
  }
  order.resize(std::min(count, there));
  return order;
}

std::vector<double> ScoresOf(const ChooseOp& op, std::vector<double> x) {
  if (op.scores == RouterScores::kSigmoid) {
    for (double& one : x) one = 1 / (1 + std::exp(-one));
    return x;
  }
  double largest = -kInfinity, sum = 0;
  for (double one : x) largest = std::fmax(largest, one);
  for (double& one : x) {
    one = one == largest ? 1 : std::exp(one - largest);
    if (!std::isnan(one)) sum += one;
  }
  for (double& one : x) one /= sum;
  return x;
}

void KeepTopGroups(const ChooseOp& op, std::vector<double>& c, bool& told) {
  const int64_t size = static_cast<int64_t>(c.size()) / op.groups;
  std::vector<double> of_groups;
  for (int64_t g = 0; g < op.groups; ++g) {
    std::vector<double> members;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) {
      if (!std::isnan(c[i])) members.push_back(c[i]);
    }
    std::sort(members.rbegin(), members.rend());
    const size_t summed = op.group_score == GroupScore::kMax ? 1 : 2;
    members.resize(std::min(members.size(), summed));
    of_groups.push_back(members.empty() ? kNaN
                                        : std::accumulate(members.begin(), members.end(), 0.0));
  }
  const std::vector<int64_t> kept = Largest(of_groups, op.top_groups, /*as_set=*/true, told);
  for (size_t i = 0; i < c.size(); ++i) {
    const int64_t group = static_cast<int64_t>(i) / size;
    if (std::find(kept.begin(), kept.end(), group) == kept.end()) c[i] = kNaN;
  }
}

Choice ChoiceOf(const ChooseOp& op, const std::vector<double>& logits,
                const std::vector<double>& bias) {
  Choice choice;
  const std::vector<double> scores = ScoresOf(op, logits);
  std::vector<double> c = scores;
  for (size_t i = 0; i < bias.size(); ++i) c[i] += bias[i];
  if (op.groups > 1) KeepTopGroups(op, c, choice.told);
  const int64_t top_k = op.experts.shape[1];
  double sum = 0;
  for (int64_t expert : Largest(c, top_k, /*as_set=*/false, choice.told)) {
    choice.experts.push_back(static_cast<double>(expert));
    choice.weights.push_back(scores[expert]);
    sum += scores[expert];
  }
  for (double& weight : choice.weights) {
    weight *= op.scale / (op.renormalize ? sum + 1e-20 : 1);
  }
  choice.experts.resize(top_k, -1);
  choice.weights.resize(top_k, 0);
  return choice;
}

// Runs `op`; every token's choice must be the reference's, but for a few that FP32 cannot tell.
void CheckChoose(Scene& scene, Executor& executor, const ChooseOp& op) {
  const Outcome outcome = scene.Run(executor, Op(op));
  const Bindings bindings = scene.Reference();
  const std::vector<double> logits = ReadTensor(op.logits, bindings);
  const std::vector<double> bias = op.bias ? ReadTensor(*op.bias, bindings) : std::vector<double>();
  const std::vector<double> experts = Values(outcome, op.experts);
  const std::vector<double> weights = Values(outcome, op.weights);
  const int64_t count = op.logits.shape[1], top_k = op.experts.shape[1];
  int64_t untold = 0;
  for (int64_t t = 0; t < op.logits.shape[0]; ++t) {
    const auto row = logits.begin() + t * count;
    const Choice wanted = ChoiceOf(op, std::vector<double>(row, row + count), bias);
    if (!wanted.told) {
      ++untold;
      continue;
    }
    for (int64_t j = 0; j < top_k; ++j) {
      ASSERT_EQ(experts[t * top_k + j], wanted.experts[j]) << "token " << t << " choice " << j;
      ASSERT_NEAR(weights[t * top_k + j], wanted.weights[j],
                  2e-6 * std::abs(wanted.weights[j]) + 1e-12)
          << "token " << t << " choice " << j;
    }
  }
  EXPECT_LE(untold, 2 + op.logits.shape[0] / 4) << "too few choices were looked at";
  ExpectOnlyElementsWritten(scene, outcome, op.experts);
  ExpectOnlyElementsWritten(scene, outcome, op.weights);
}

ChooseOp MakeChoose(Scene& scene, const TensorRef& logits, int64_t top_k) {
  const Dims chosen = MakeDims({logits.shape[0], top_k});
  return {
      .logits = logits,
      .experts = scene.Poisoned(DType::kI32, chosen,
                                scene.Between(0, 1) == 1 ? Placement::kPadded : Placement::kDense),
      .weights = scene.Poisoned(DType::kF32, chosen, kPlacements[scene.Between(0, 3)]),
      .renormalize = scene.Between(0, 1) == 1};
}

// F32 logits of these values, a row each.
TensorRef Logits(Scene& scene, const std::vector<std::vector<double>>& rows) {
  const auto tokens = static_cast<int64_t>(rows.size());
  const auto experts = static_cast<int64_t>(rows[0].size());
  const TensorRef logits = scene.Random(DType::kF32, MakeDims({tokens, experts}));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t e = 0; e < experts; ++e) scene.Set(logits, {t, e}, rows[t][e]);
  }
  return logits;
}

// BF16 and F16 have equal ones among many experts' logits, so that ties are chosen among as well.
TEST_P(ContractTest, ChoosesExpertsOfTheLargestScores) {
  Scene seeds;
  for (int64_t experts : {1, 7, 32, 33, 60, 128, 256, 511, 512}) {
    for (int64_t top_k : {1, 2, 6, 8, 32}) {
      if (top_k > experts) continue;
      for (DType dtype : kLogitTypes) {
        for (RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
          if (!Takes()) continue;
          Scene scene(seeds.random()());
          SCOPED_TRACE(testing::Message() << experts << " experts, top " << top_k << ", "
                                          << Name(dtype) << ", " << Name(scores));
          ChooseOp op = MakeChoose(scene,
                                   scene.Random(dtype, MakeDims({scene.Between(1, 40), experts}),
                                                kPlacements[scene.Between(0, 3)]),
                                   top_k);
          op.scores = scores;
          op.scale = scene.Between(0, 1) == 1 ? 2.5f : 1.0f;
          if (scene.Between(0, 1) == 1) {
            op.bias =
                scene.Random(DType::kF32, MakeDims({experts}), kPlacements[scene.Between(0, 3)]);
          }
          CheckChoose(scene, executor(), op);
        }
      }
    }
  }
}

TEST_P(ContractTest, ChoosesForManyTokens) {
  Scene seeds;
  for (int64_t tokens : {528, 529, 1050}) {
    for (DType dtype : kLogitTypes) {
      if (!Takes()) continue;
      Scene scene(seeds.random()());
      ChooseOp op = MakeChoose(scene, scene.Random(dtype, MakeDims({tokens, 64})), 6);
      CheckChoose(scene, executor(), op);
      op.groups = 8;
      op.top_groups = 3;
      CheckChoose(scene, executor(), op);
    }
  }
}

TEST_P(ContractTest, ChoosesAmongTheTopGroups) {
  struct Grouping {
    int64_t experts, groups, top_groups, top_k;
  };
  Scene seeds;
  for (const Grouping& c : {Grouping{256, 8, 4, 8},
                            {160, 8, 3, 6},
                            {60, 4, 1, 4},
                            {64, 32, 5, 6},
                            {96, 3, 2, 32},
                            {511, 7, 2, 8},
                            {512, 64, 9, 32},
                            {512, 256, 100, 8},
                            {510, 5, 5, 8},
                            {6, 3, 2, 3}}) {
    for (GroupScore score : {GroupScore::kMax, GroupScore::kTop2Sum}) {
      for (DType dtype : kLogitTypes) {
        if (!Takes()) continue;
        Scene scene(seeds.random()());
        SCOPED_TRACE(testing::Message() << c.experts << " experts of " << c.groups << " groups, "
                                        << Name(score) << ", " << Name(dtype));
        ChooseOp op = MakeChoose(scene, scene.Random(dtype, MakeDims({30, c.experts})), c.top_k);
        op.groups = c.groups;
        op.top_groups = c.top_groups;
        op.group_score = score;
        op.scores = scene.Between(0, 1) == 1 ? RouterScores::kSoftmax : RouterScores::kSigmoid;
        if (scene.Between(0, 1) == 1) op.bias = scene.Random(DType::kF32, MakeDims({c.experts}));
        CheckChoose(scene, executor(), op);
      }
    }
  }
}

// A group each.
TEST_P(ContractTest, ChoosesAmongGroupsOfOne) {
  Scene scene;
  ChooseOp op = MakeChoose(scene, scene.Random(DType::kF32, MakeDims({9, 512})), 4);
  op.groups = 512;
  op.top_groups = 17;
  CheckChoose(scene, executor(), op);
}

// The pair 3 + 3 beats 5 + 0, and 5 beats both threes.
TEST_P(ContractTest, AGroupsScoreIsItsLargestOrASumOfTwo) {
  for (const auto& [score, expert] :
       {std::pair{GroupScore::kMax, 1.0}, {GroupScore::kTop2Sum, 4.0}}) {
    Scene scene;
    ChooseOp op = MakeChoose(scene, Logits(scene, {{0, 0, 0, 0, 0, 0}}), 1);
    op.bias = scene.Random(DType::kF32, MakeDims({6}));
    for (int64_t i = 0; const double x : {0, 5, 0, 1, 3, 3}) scene.Set(*op.bias, {i++}, x);
    op.groups = 2;
    op.group_score = score;
    const Outcome outcome = scene.Run(executor(), Op(op));
    EXPECT_EQ(Values(outcome, op.experts), std::vector<double>{expert});
  }
}

TEST_P(ContractTest, EqualScoresGoToTheFirstExperts) {
  for (int64_t experts : {1, 31, 100, 512}) {
    for (RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
      Scene scene;
      const std::vector<double> same(experts, 1.5);
      const int64_t top_k = std::min<int64_t>(experts, 32);
      ChooseOp op = MakeChoose(scene, Logits(scene, {same, same}), top_k);
      op.scores = scores;
      const Outcome outcome = scene.Run(executor(), Op(op));
      const std::vector<double> chosen = Values(outcome, op.experts);
      for (int64_t i = 0; i < 2 * top_k; ++i) ASSERT_EQ(chosen[i], i % top_k);
      CheckChoose(scene, executor(), op);
      if (experts % 4 != 0) continue;
      op.groups = 4;  // those of equal scores, too
      op.top_groups = 2;
      CheckChoose(scene, executor(), op);
    }
  }
}

TEST_P(ContractTest, ABiasMovesTheChoiceAndNotTheWeights) {
  Scene scene;
  ChooseOp op = MakeChoose(scene, Logits(scene, {{0, 0, 0, 0}}), 2);
  op.scores = RouterScores::kSigmoid;
  op.renormalize = false;
  op.bias = scene.Random(DType::kF32, MakeDims({4}));
  for (int64_t i = 0; const double x : {-1.0, 7.0, -kInfinity, 9.0}) scene.Set(*op.bias, {i++}, x);
  const Outcome outcome = scene.Run(executor(), Op(op));
  EXPECT_EQ(Values(outcome, op.experts), (std::vector<double>{3, 1}));
  EXPECT_EQ(Values(outcome, op.weights), (std::vector<double>{0.5, 0.5}));
  scene.Set(*op.bias, {3}, kNaN);
  const Outcome without = scene.Run(executor(), Op(op));
  EXPECT_EQ(Values(without, op.experts), (std::vector<double>{1, 0}));
}

TEST_P(ContractTest, NaNIsNeverChosenAndInfinitiesAre) {
  const std::vector<double> nobody(40, kNaN), lowest(40, -kInfinity);
  std::vector<double> two = nobody, mixed(40, 0), above(40, -kInfinity);
  two[7] = 2;
  two[35] = 3;
  mixed[3] = mixed[33] = kInfinity;
  mixed[4] = kNaN;
  mixed[5] = -kInfinity;
  above[38] = -1000;
  for (RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    for (int64_t groups : {1, 4}) {
      Scene scene;
      SCOPED_TRACE(testing::Message() << Name(scores) << " " << groups);
      ChooseOp op = MakeChoose(scene, Logits(scene, {nobody, lowest, two, mixed, above}), 4);
      op.scores = scores;
      op.groups = groups;
      op.top_groups = groups == 1 ? 1 : 2;
      op.group_score = GroupScore::kTop2Sum;
      CheckChoose(scene, executor(), op);
      const Outcome outcome = scene.Run(executor(), Op(op));
      const std::vector<double> chosen = Values(outcome, op.experts);
      EXPECT_EQ(std::vector<double>(chosen.begin(), chosen.begin() + 4),
                std::vector<double>(4, -1));
      EXPECT_EQ(std::vector<double>(chosen.begin() + 8, chosen.begin() + 12),
                (std::vector<double>{35, 7, -1, -1}));
    }
  }
}

// What a bias of infinities makes of a group is no number, and so the group is nobody's.
TEST_P(ContractTest, AGroupWithoutAScoreIsNotChosenFrom) {
  Scene scene;
  ChooseOp op = MakeChoose(scene, Logits(scene, {{0, 0, 0, 0}}), 2);
  op.bias = scene.Random(DType::kF32, MakeDims({4}));
  for (int64_t i = 0; const double x : {kInfinity, -kInfinity, 0.0, 1.0}) {
    scene.Set(*op.bias, {i++}, x);
  }
  op.groups = 2;
  op.top_groups = 2;
  op.group_score = GroupScore::kTop2Sum;
  EXPECT_EQ(Values(scene.Run(executor(), Op(op)), op.experts), (std::vector<double>{3, 2}));
}

TEST_P(ContractTest, DoesNothingWhereThereIsNoTokenToChooseFor) {
  Scene scene(7);
  const ChooseOp op = MakeChoose(scene, scene.Random(DType::kBF16, MakeDims({0, 60})), 4);
  const Outcome outcome = scene.Run(executor(), Op(op));
  EXPECT_TRUE(outcome.slots == scene.slots());
}

// One row of logits for all tokens, and one bias for all experts.
TEST_P(ContractTest, ChoosesByRepeatedRows) {
  Scene scene;
  ChooseOp op = MakeChoose(scene, scene.Random(DType::kBF16, MakeDims({12, 80})), 5);
  op.bias = scene.Random(DType::kF32, MakeDims({80}));
  op.logits.strides[0] = 0;
  op.bias->strides[0] = 0;
  CheckChoose(scene, executor(), op);
}

TEST_P(ContractTest, AChoiceGoesOnToItsRoute) {
  Scene scene;
  const int64_t tokens = 70, top_k = 4, experts = 24;
  ChooseOp choose =
      MakeChoose(scene, scene.Random(DType::kBF16, MakeDims({tokens, experts})), top_k);
  const RouteOp route{.ids = choose.experts,
                      .offsets = scene.Poisoned(DType::kI32, MakeDims({experts + 1})),
                      .rows = scene.Poisoned(DType::kI32, MakeDims({tokens * top_k})),
                      .positions = scene.Poisoned(DType::kI32, MakeDims({tokens, top_k}))};
  const Outcome outcome = scene.Run(executor(), {Op(choose), Op(route)});
  const std::vector<double> chosen = Values(outcome, choose.experts);
  const std::vector<double> offsets = Values(outcome, route.offsets);
  const std::vector<double> positions = Values(outcome, route.positions);
  EXPECT_EQ(offsets.back(), tokens * top_k);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto expert = static_cast<size_t>(chosen[i]);
    ASSERT_GE(positions[i], offsets[expert]) << i;
    ASSERT_LT(positions[i], offsets[expert + 1]) << i;
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
