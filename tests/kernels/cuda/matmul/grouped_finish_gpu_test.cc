// Grouped matmuls that need more than rounding, by the TMA kernels of every operand kind: FP32
// results, alpha, biases by group, activations, held against float64.

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "tests/kernels/cuda/matmul/grouped_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::GroupedCase;
using contract::GroupedScene;
using contract::MatmulOfGroup;
using contract::Outcome;
using contract::Placement;
using contract::RowsIn;
using contract::Scene;

struct GroupedKind {
  const char* name;
  DType dtype;
  ScaleGranularity a, b;
};
constexpr GroupedKind kKinds[] = {
    {"e4m3_block", DType::kE4M3, ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128},
    {"i8_block", DType::kI8, ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128},
    {"bf16", DType::kBF16, ScaleGranularity::kNone, ScaleGranularity::kNone},
    {"f16", DType::kF16, ScaleGranularity::kNone, ScaleGranularity::kNone},
    {"i8", DType::kI8, ScaleGranularity::kPerRow, ScaleGranularity::kPerRow},
    {"e4m3", DType::kE4M3, ScaleGranularity::kPerRow, ScaleGranularity::kPerRow},
};
// What is asked for beside the product. A bias and an activation are of sums as large as they are.
struct Finish {
  bool f32 = false;  // results, else of 16 bits
  enum { kNone, kF32, kOfD } bias = kNone;
  float alpha = 1.0f;
  Activation activation = Activation::kNone;
};
constexpr Finish kFinishes[] = {
    {.bias = Finish::kF32},
    {.bias = Finish::kOfD},
    {.f32 = true},
    {.alpha = -0.5f},
    {.bias = Finish::kF32, .alpha = 0.75f, .activation = Activation::kRelu},
    {.activation = Activation::kSilu},
    {.bias = Finish::kOfD, .activation = Activation::kGeluErf},
    {.f32 = true, .alpha = -0.5f, .activation = Activation::kGeluTanh},
    {.f32 = true, .bias = Finish::kF32, .activation = Activation::kSilu},
    {.activation = Activation::kReluSquared},
    {.f32 = true, .bias = Finish::kF32, .activation = Activation::kReluSquared},
};

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

class GroupedFinishGpuTest : public GroupedGpuTest<GroupedKind> {
 protected:
  GroupedCase Case(GroupLayout layout, std::vector<int64_t> rows, int64_t n, int64_t k) const {
    return {.layout = layout,
            .rows = std::move(rows),
            .n = n,
            .k = k,
            .alignment = 8,
            .dtype = GetParam().dtype,
            .out = GetParam().dtype == DType::kF16 ? DType::kF16 : DType::kBF16,
            .a_granularity = GetParam().a,
            .b_granularity = GetParam().b};
  }

  // The first group with rows: its sums' size, to the next power of two.
  static float SizeOfSums(Scene& scene, const GroupedScene& grouped) {
    for (size_t g = 0; g < grouped.groups.size(); ++g) {
      if (grouped.groups[g].rows == 0) continue;
      const std::vector<double> sums = ReferenceMatmul(
          MatmulOfGroup(grouped.op, static_cast<int64_t>(g), grouped.groups[g]), scene.Reference());
      return std::exp2(static_cast<float>(
          std::round(std::log2(Norm(sums) / std::sqrt(static_cast<double>(sums.size()))))));
    }
    return 1;
  }

  GroupedScene Make(Scene& scene, GroupedCase c, const Finish& finish) {
    if (finish.f32) c.out = DType::kF32;
    GroupedScene grouped = MakeGrouped(scene, c);
    GroupedMatmulOp& op = grouped.op;
    float size = SizeOfSums(scene, grouped);
    if (finish.activation > Activation::kRelu) {  // bends where sums are a few
      op.alpha *= 2 / size;
      size = 2;
    }
    op.alpha *= finish.alpha;
    op.activation = finish.activation;
    if (finish.bias == Finish::kNone) return grouped;
    const auto groups = static_cast<int64_t>(c.rows.size());
    const DType type = finish.bias == Finish::kF32 ? DType::kF32 : op.d.dtype;
    op.bias = scene.Random(type, MakeDims({groups, c.n}), c.d);
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t i = 0; i < c.n; ++i) {
        const auto step = static_cast<double>((g * 5 + i * 7) % 9 - 4);
        scene.Set(*op.bias, {g, i}, size * step / 2);
      }
    }
    return grouped;
  }

  // Each group's rows are right and no others written, three times the same, by the TMA kernel.
  void Check(const GroupedCase& c, const Finish& finish) {
    Scene scene;
    const GroupedScene grouped = Make(scene, c, finish);
    const GroupedMatmulOp& op = grouped.op;
    SCOPED_TRACE(ToString(c) + (finish.f32 ? " f32" : "") + " bias " + std::to_string(finish.bias) +
                 " alpha " + std::to_string(op.alpha) + " activation " +
                 std::to_string(static_cast<int>(op.activation)) + " seed " +
                 std::to_string(scene.seed()));
    const Outcome outcome = scene.Run(*executor_, Op(op));
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_EQ(outcome.kernels[0], TmaGroupedName(op.a));
    // FP8's tensor cores keep about 14 bits of a sum.
    const double single = c.dtype == DType::kE4M3 ? 1e-3 : 1e-5;
    const double limit = op.d.dtype == DType::kF32   ? single
                         : op.d.dtype == DType::kF16 ? 1e-3
                                                     : 5e-3;
    for (size_t g = 0; g < grouped.groups.size(); ++g) {
      if (grouped.groups[g].rows == 0) continue;
      MatmulOp matmul = MatmulOfGroup(op, static_cast<int64_t>(g), grouped.groups[g]);
      const std::vector<double> expected = ReferenceMatmul(matmul, scene.Reference());
      std::vector<double> difference = Values(outcome, matmul.d);
      for (size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
      // An activation's results may be next to nothing: what it was given says what is allowed.
      matmul.activation = Activation::kNone;
      const std::vector<double> given = op.activation == Activation::kNone
                                            ? expected
                                            : ReferenceMatmul(matmul, scene.Reference());
      double norm = Norm(given);
      if (op.activation == Activation::kReluSquared) {  // off by twice that times itself
        norm *= 2 * *std::max_element(given.begin(), given.end());
      }
      EXPECT_LE(Norm(difference), limit * norm) << "group " << g;
    }
    ExpectOnlyGroupsWritten(scene, outcome, op.d, grouped);
    for (int run = 1; run < 3; ++run) {
      EXPECT_TRUE(scene.Run(*executor_, Op(op)).slots[op.d.slot] == outcome.slots[op.d.slot])
          << "run " << run;
    }
  }
};

TEST_P(GroupedFinishGpuTest, GroupsOfEverySizeInEveryLayout) {
  for (const GroupLayout layout : kEveryLayout) {
    for (const Finish& finish : kFinishes) {
      Check(Case(layout, {3, 0, 17, 70, 130, 200, 300}, 264, 144), finish);
    }
  }
}

// Rows of D that are no whole units of 8 or of 4, and rows that lie apart.
TEST_P(GroupedFinishGpuTest, ColumnsThatFillNoUnit) {
  for (const int64_t n : {133, 204, 258}) {
    for (const Placement d : {Placement::kDense, Placement::kPadded}) {
      for (const Finish& finish : kFinishes) {
        GroupedCase c = Case(GroupLayout::kOffsets, {40, 5, 150}, n, 272);
        c.d = d;
        Check(c, finish);
      }
    }
  }
}

TEST_P(GroupedFinishGpuTest, RowsOfAPaddedResult) {
  for (const GroupLayout layout : {GroupLayout::kCounts, GroupLayout::kEnds}) {
    for (const Finish& finish : kFinishes) {
      GroupedCase c = Case(layout, {12, 0, 100, 290}, 256, 384);
      c.d = Placement::kPadded;
      Check(c, finish);
    }
  }
}

TEST_P(GroupedFinishGpuTest, MatricesThatLieApart) {
  for (const GroupLayout layout : kEveryLayout) {
    for (const Finish& finish : kFinishes) {
      GroupedCase c = Case(layout, {9, 33, 0, 64, 260}, 392, 144);
      c.table = true;
      Check(c, finish);
    }
  }
}

// Groups of few rows, whose tiles have 16 columns of the product, and long k.
TEST_P(GroupedFinishGpuTest, FewRowsOfManyGroups) {
  for (const Finish& finish : kFinishes) {
    Check(Case(GroupLayout::kOffsets, {1, 2, 0, 8, 4, 16, 5, 3}, 520, 2048), finish);
  }
}

// Enough tiles for several to each CTA, of all widths: by pairs, where scales are of blocks.
TEST_P(GroupedFinishGpuTest, ManyTilesOfLargeGroups) {
  for (const bool table : {false, true}) {
    for (const Finish& finish : {kFinishes[0], kFinishes[1], kFinishes[5], kFinishes[8]}) {
      GroupedCase c = Case(GroupLayout::kOffsets, {1100, 300, 3}, 4104, 48);
      c.table = table;
      Check(c, finish);
      if (GetParam().a != ScaleGranularity::kBlock1x128) continue;
      Scene scene;
      EXPECT_EQ(LayoutOf(Make(scene, c, finish).op, true).rows, RowsKernel::kPairs);
    }
  }
}

// In front of a gate the product is rounded to BF16, or not.
TEST_P(GroupedFinishGpuTest, AGateFollowsAProductWithABias) {
  for (const GroupLayout layout : kEveryLayout) {
    for (const DType out : {DType::kBF16, DType::kF32}) {
      Scene scene;
      const GroupedCase c = Case(layout, {21, 0, 140, 300}, 512, 144);
      GroupedScene grouped =
          Make(scene, c, {.f32 = true, .bias = Finish::kF32, .activation = Activation::kSilu});
      GroupedMatmulOp& op = grouped.op;
      op.activation = Activation::kNone;
      op.gate = Gate{};
      Dims half = op.d.shape;
      half[half.rank - 1] /= 2;
      op.d = scene.Poisoned(out, half);
      const Outcome outcome = scene.Run(*executor_, Op(op));
      ASSERT_EQ(outcome.kernels.size(), 1u);
      EXPECT_EQ(outcome.kernels[0], TmaGroupedName(op.a));
      const int64_t n = c.n / 2;
      for (size_t g = 0; g < grouped.groups.size(); ++g) {
        if (grouped.groups[g].rows == 0) continue;
        MatmulOp matmul = MatmulOfGroup(op, static_cast<int64_t>(g), grouped.groups[g]);
        matmul.d.shape[1] = c.n;  // of the reference alone
        const std::vector<double> product = ReferenceMatmul(matmul, scene.Reference());
        std::vector<double> expected;
        std::vector<double> difference = Values(outcome, RowsIn(op.d, op, grouped.groups[g]));
        for (size_t i = 0; i < difference.size(); ++i) {
          const size_t at = i / n * c.n + i % n;
          expected.push_back(ReferenceActivation(op.gate->activation, product[at]) *
                             product[at + n]);
          difference[i] -= expected.back();
        }
        EXPECT_LE(Norm(difference), 0.01 * Norm(expected))
            << "group " << g << " to " << Name(out) << " seed " << scene.seed();
      }
      ExpectOnlyGroupsWritten(scene, outcome, op.d, grouped);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GroupedFinishGpuTest, testing::ValuesIn(kKinds),
                         [](const testing::TestParamInfo<GroupedKind>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace gemmd::kernels::cuda
