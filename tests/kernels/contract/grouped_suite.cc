// Grouped matmuls: each group's rows against float64, in every layout, and not a byte of any other
// row; what happens to numbers that cannot be.

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/grouped_case.h"

namespace gemmd::kernels::contract {
namespace {

using testing::HasSubstr;

constexpr GroupLayout kLayouts[] = {GroupLayout::kOffsets, GroupLayout::kCounts,
                                    GroupLayout::kRowIds, GroupLayout::kEnds};

void Check(Executor& executor, const GroupedCase& c, uint64_t seed = 0) {
  SCOPED_TRACE(ToString(c));
  Scene scene(seed);
  CheckGrouped(executor, scene, MakeGrouped(scene, c));
}

// FP8 with the scales that models have.
GroupedCase Fp8Case(GroupLayout layout) {
  return {.layout = layout,
          .alignment = 16,
          .dtype = DType::kE4M3,
          .out = DType::kBF16,
          .a_granularity = ScaleGranularity::kBlock1x128,
          .b_granularity = ScaleGranularity::kBlock128x128};
}

TEST_P(ContractTest, GroupsMultiplyTheirOwnMatrices) {
  Scene seeds;
  for (GroupLayout layout : kLayouts) {
    for (const DTypeInfo& info : kDTypes) {
      GroupedCase c{.layout = layout, .alignment = 8, .dtype = info.dtype};
      Check(executor(), c, seeds.random()());
      c.rows = {0, 17, 1, 0, 66, 130};
      c.n = 72;
      c.k = 200;
      c.out = DType::kBF16;
      Check(executor(), c, seeds.random()());
    }
  }
}

TEST_P(ContractTest, GroupsOfFp8TakeBlockScales) {
  Scene seeds;
  for (GroupLayout layout : kLayouts) {
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{256, 512}, {128, 128}, {384, 384}, {200, 272}, {136, 130}}) {
      GroupedCase c = Fp8Case(layout);
      c.n = n;
      c.k = k;
      for (const std::vector<int64_t>& rows : {std::vector<int64_t>{64, 128, 0, 1},
                                               {300, 7, 129},
                                               {273, 545, 288},
                                               {0, 0, 8},
                                               {1, 2, 3, 4, 5, 63, 65}}) {
        c.rows = rows;
        if (Takes()) Check(executor(), c, seeds.random()());
      }
    }
  }
}

// Tiles of few rows and of many, one or several of a group, by every front.
TEST_P(ContractTest, GroupsOf16BitsGiveEveryTypeOfResult) {
  Scene seeds;
  for (GroupLayout layout : kLayouts) {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      for (DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{256, 192}, {136, 320}, {200, 72}}) {
          GroupedCase c{
              .layout = layout, .n = n, .k = k, .alignment = 8, .dtype = dtype, .out = out};
          c.bias = n == 136;
          for (const std::vector<int64_t>& rows :
               {std::vector<int64_t>{64, 97, 0, 1, 200}, {300, 7, 129}}) {
            c.rows = rows;
            if (Takes()) Check(executor(), c, seeds.random()());
          }
        }
      }
    }
  }
}

// INT8 with the scales that models have, by row and column, or by block, and E4M3 with the former;
// few rows and many.
TEST_P(ContractTest, GroupsOfBytesGiveEveryTypeOfResult) {
  Scene seeds;
  for (GroupLayout layout : kLayouts) {
    for (const auto& [dtype, blocks] :
         {std::pair(DType::kI8, false), {DType::kI8, true}, {DType::kE4M3, false}}) {
      for (DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
        GroupedCase c = Fp8Case(layout);
        c.dtype = dtype;
        c.out = out;
        if (!blocks) c.a_granularity = c.b_granularity = ScaleGranularity::kPerRow;
        for (const auto& [n, k] : {std::pair<int64_t, int64_t>{256, 512}, {136, 272}, {200, 144}}) {
          c.n = n;
          c.k = k;
          c.bias = n == 136 && !blocks;
          for (const std::vector<int64_t>& rows :
               {std::vector<int64_t>{64, 97, 0, 1, 200}, {300, 7, 129}, {600, 40, 150}}) {
            c.rows = rows;
            c.table = rows.size() == 5;
            if (Takes()) Check(executor(), c, seeds.random()());
          }
        }
      }
    }
  }
}

// Below 2^24 FP32 has every integer: sums of products come back to the last bit.
TEST_P(ContractTest, SumsOfInt8GroupsAreExact) {
  for (GroupLayout layout : kLayouts) {
    for (bool blocks : {false, true}) {
      Scene scene;
      GroupedCase c = Fp8Case(layout);
      c.dtype = DType::kI8;
      c.out = DType::kF32;
      c.n = 136;
      c.k = 512;
      c.rows = {70, 0, 1, 300};
      if (!blocks) c.a_granularity = c.b_granularity = ScaleGranularity::kNone;
      const GroupedScene grouped = MakeGrouped(scene, c);
      if (blocks) {
        const std::vector<Op> scales = {FillOp{*grouped.op.a.scales, 0.5},
                                        FillOp{*grouped.op.b.scales, 4}};
        scene.Replace(scene.Run(executor(), scales));
      }
      const Outcome outcome = scene.Run(executor(), Op(grouped.op));
      for (size_t g = 0; g < c.rows.size(); ++g) {
        if (c.rows[g] == 0) continue;
        const MatmulOp matmul =
            MatmulOfGroup(grouped.op, static_cast<int64_t>(g), grouped.groups[g]);
        EXPECT_TRUE(Values(outcome, matmul.d) == ReferenceMatmul(matmul, scene.Reference()))
            << "group " << g << (blocks ? " by blocks" : "");
      }
    }
  }
}

TEST_P(ContractTest, GroupsTakeEveryGranularityOfScales) {
  Scene seeds;
  for (ScaleGranularity a : {ScaleGranularity::kNone, ScaleGranularity::kPerTensor,
                             ScaleGranularity::kPerRow, ScaleGranularity::kBlock1x128}) {
    for (ScaleGranularity b :
         {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow,
          ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128}) {
      for (DType dtype : {DType::kE4M3, DType::kI8}) {
        GroupedCase c = Fp8Case(kLayouts[seeds.Between(0, 3)]);
        c.dtype = dtype;
        c.a_granularity = a;
        c.b_granularity = b;
        c.n = 144;
        c.k = 260;
        c.rows = {9, 0, 33};
        if (Takes()) Check(executor(), c, seeds.random()());
      }
    }
  }
}

TEST_P(ContractTest, GroupsLieAnywhere) {
  Scene seeds;
  for (Placement a : kPlacements) {
    for (Placement b : kPlacements) {
      for (Placement d : kPlacements) {
        GroupedCase c = Fp8Case(kLayouts[seeds.Between(0, 3)]);
        c.rows = {21, 1, 0, 40};
        c.n = 96;
        c.k = 256;
        c.a = a;
        c.b = b;
        c.d = d;
        if (Takes()) Check(executor(), c, seeds.random()());
      }
    }
  }
}

TEST_P(ContractTest, GroupsAreOfAnySize) {
  Scene seeds;
  for (int i = 0; i < GetParam().random_shapes / 5; ++i) {
    Scene draw(seeds.random()());
    GroupedCase c = Fp8Case(kLayouts[i % 4]);
    c.n = draw.Between(1, 40) * 16;
    c.k = draw.Between(1, 40) * 16;
    c.alignment = 1 << draw.Between(0, 7);
    c.rows.assign(static_cast<size_t>(draw.Between(1, 12)), 0);
    for (int64_t& rows : c.rows) {
      rows = draw.Between(0, 3) == 0 ? 0 : draw.Between(1, draw.Between(1, 200));
    }
    Check(executor(), c, draw.random()());
  }
}

TEST_P(ContractTest, OneGroupMayHaveAllRowsAndAllMayHaveNone) {
  for (GroupLayout layout : kLayouts) {
    GroupedCase c = Fp8Case(layout);
    c.n = c.k = 256;
    c.rows = {0, 0, 257, 0};
    Check(executor(), c);
    c.rows = {0, 0, 0, 0};
    Check(executor(), c);
    c.rows = {5};
    Check(executor(), c);
    c.rows.assign(kMaxGroups, 1);
    if (Takes()) Check(executor(), c);
  }
}

// The same rows and matrices give the same bits however the groups are told.
TEST_P(ContractTest, LayoutsOfGroupsAgree) {
  for (const auto& [dtype, blocks] : {std::pair(DType::kE4M3, true),
                                      {DType::kE4M3, false},
                                      {DType::kBF16, false},
                                      {DType::kI8, false}}) {
    Scene scene;
    GroupedCase c = Fp8Case(GroupLayout::kOffsets);
    c.dtype = dtype;
    if (!blocks) {
      c.a_granularity = c.b_granularity =
          dtype == DType::kBF16 ? ScaleGranularity::kNone : ScaleGranularity::kPerRow;
    }
    c.n = c.k = 256;
    c.rows = {70, 0, 64, 1, 130};
    c.around = 0;
    const GroupedScene by_offsets = MakeGrouped(scene, c);
    const Outcome first = CheckGrouped(executor(), scene, by_offsets);
    GroupedMatmulOp op = by_offsets.op;
    std::vector<int32_t> ids;
    for (size_t g = 0; g < c.rows.size(); ++g) ids.insert(ids.end(), c.rows[g], g);
    op.layout = GroupLayout::kRowIds;
    op.groups = scene.Numbers(MakeDims({static_cast<int64_t>(ids.size())}), ids);
    EXPECT_TRUE(scene.Run(executor(), Op(op)).slots[op.d.slot] == first.slots[op.d.slot]);
    op.layout = GroupLayout::kEnds;
    op.groups = scene.Numbers(MakeDims({5}), {70, 70, 134, 135, 265});
    EXPECT_TRUE(scene.Run(executor(), Op(op)).slots[op.d.slot] == first.slots[op.d.slot]);
  }
}

TEST_P(ContractTest, GroupsHaveBiasesAndActivations) {
  for (GroupLayout layout : kLayouts) {
    Scene scene;
    GroupedCase c = Fp8Case(layout);
    c.n = c.k = 160;
    c.rows = {20, 0, 3};
    c.bias = true;
    GroupedScene grouped = MakeGrouped(scene, c);
    grouped.op.alpha = 0.5f;
    grouped.op.activation = Activation::kSilu;
    CheckGrouped(executor(), scene, grouped);
  }
}

// NaN and infinities in rows of nobody stay there; a poisoned scene has NaN in them already, and
// these rows are the neighbours of the groups' own.
TEST_P(ContractTest, RowsOfNobodyDoNotSpread) {
  for (GroupLayout layout : kLayouts) {
    Scene scene;
    GroupedCase c = Fp8Case(layout);
    c.n = c.k = 256;
    c.rows = {30, 0, 65};
    c.around = 3;
    const GroupedScene grouped = MakeGrouped(scene, c);
    std::vector<std::vector<bool>> own(2);
    const Dims& a = grouped.op.a.values.shape;
    const int64_t items = a.rank == 3 ? a[0] : 1, rows = a[a.rank - 2];
    for (int64_t item = 0; item < items; ++item) {
      for (int64_t row = 0; row < rows; ++row) {
        const bool used =
            std::any_of(grouped.groups.begin(), grouped.groups.end(), [&](const GroupRows& group) {
              return group.item == item && row >= group.first && row < group.first + group.rows;
            });
        if (used) continue;
        const double nan = std::nan("");
        if (a.rank == 3) {
          scene.Set(grouped.op.a.values, {item, row, 5}, nan);
          scene.Set(*grouped.op.a.scales, {item, row, 0}, INFINITY);
        } else {
          scene.Set(grouped.op.a.values, {row, 5}, nan);
          scene.Set(*grouped.op.a.scales, {row, 0}, INFINITY);
        }
      }
    }
    CheckGrouped(executor(), scene, grouped);
  }
}

// act(gate) * up of the float64 product, held against what came back with its scales.
void CheckGatedGroups(Executor& executor, Scene& scene, GroupedScene grouped, DType out) {
  GroupedMatmulOp& op = grouped.op;
  Dims half = op.d.shape;
  half[half.rank - 1] /= 2;
  op.d = scene.Poisoned(out, half);
  if (out == DType::kE4M3) {
    op.d_scales = scene.Poisoned(DType::kF32, ScaleShape(half, ScaleGranularity::kBlock1x128));
  }
  const Outcome outcome = scene.Run(executor, Op(op));
  const int64_t n = half[half.rank - 1];
  for (size_t g = 0; g < grouped.groups.size(); ++g) {
    if (grouped.groups[g].rows == 0) continue;
    MatmulOp matmul = MatmulOfGroup(op, static_cast<int64_t>(g), grouped.groups[g]);
    matmul.d.shape[1] = 2 * n;  // of the reference alone
    const std::vector<double> product = ReferenceMatmul(matmul, scene.Reference());
    const std::vector<double> values = Values(outcome, RowsIn(op.d, op, grouped.groups[g]));
    std::vector<double> scales;
    if (op.d_scales) scales = Values(outcome, RowsIn(*op.d_scales, op, grouped.groups[g]));
    const int64_t period = op.gate->period == 0 ? n : op.gate->period;
    double error = 0, norm = 0;
    for (int64_t i = 0; i < grouped.groups[g].rows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = i * 2 * n + j / period * 2 * period + j % period;
        const double expected = ReferenceActivation(op.gate->activation, product[at]) *
                                (product[at + period] + op.gate->up_offset);
        const double scale = scales.empty() ? 1 : scales[i * ((n + 127) / 128) + j / 128];
        const double difference = values[i * n + j] * scale - expected;
        error += difference * difference;
        norm += expected * expected;
      }
    }
    // E4M3 rounds by up to a sixteenth, and few large numbers may carry the norm.
    EXPECT_LE(std::sqrt(error), (out == DType::kE4M3 ? 0.065 : 0.01) * std::sqrt(norm))
        << "group " << g << " period " << op.gate->period << " to " << Name(out);
  }
  ExpectOnlyGroupsWritten(scene, outcome, op.d, grouped);
  if (op.d_scales) ExpectOnlyGroupsWritten(scene, outcome, *op.d_scales, grouped);
}

TEST_P(ContractTest, GroupsAreGatedAndQuantised) {
  for (GroupLayout layout : kLayouts) {
    for (DType out : {DType::kE4M3, DType::kBF16}) {
      for (int64_t period : {0, 1, 64}) {
        Scene scene;
        GroupedCase c = Fp8Case(layout);
        c.n = 384;
        c.k = 256;
        c.rows = {30, 0, 65, 1};
        GroupedScene grouped = MakeGrouped(scene, c);
        grouped.op.alpha = 1e-4f;
        grouped.op.gate = Gate{.period = period, .up_offset = 0.5f};
        CheckGatedGroups(executor(), scene, grouped, out);
      }
    }
  }
}

// Of blocks of 128 columns, which a kernel may gate and quantise in one go: few rows and many,
// none, every activation, the clamp and alpha of today's models.
TEST_P(ContractTest, GatesOfWholeBlocksTakeEveryActivation) {
  Scene seeds;
  for (GroupLayout layout : kLayouts) {
    for (int activation = 0; activation < kActivations; ++activation) {
      for (int64_t period : {0, 128}) {
        if (!Takes()) continue;
        Scene scene(seeds.random()());
        GroupedCase c = Fp8Case(layout);
        c.n = 512;
        c.k = 400;
        c.rows = {17, 0, 133, 1, 64};
        GroupedScene grouped = MakeGrouped(scene, c);
        grouped.op.alpha = 1e-4f;
        grouped.op.gate = Gate{.activation = static_cast<Activation>(activation),
                               .period = period,
                               .up_offset = 0.25f};
        CheckGatedGroups(executor(), scene, grouped, DType::kE4M3);
      }
    }
  }
}

struct BadNumbers {
  GroupLayout layout;
  std::vector<int32_t> numbers;
  std::string message;
};

TEST_P(ContractTest, NumbersOfGroupsThatCannotBeEndTheRun) {
  constexpr int32_t kHuge = 0x7fffffff;
  // Three groups of a with 24 rows, or of items of 24.
  const BadNumbers cases[] = {
      {GroupLayout::kOffsets, {-1, 4, 8, 12}, "groups[0]=-1"},
      {GroupLayout::kOffsets, {0, 9, 8, 12}, "groups[2]=8"},
      {GroupLayout::kOffsets, {0, 8, 16, 25}, "groups[3]=25"},
      {GroupLayout::kOffsets, {0, kHuge, kHuge, kHuge}, "groups[1]=2147483647"},
      {GroupLayout::kCounts, {3, -1, 4}, "groups[1]=-1"},
      {GroupLayout::kCounts, {3, 25, 4}, "groups[1]=25"},
      {GroupLayout::kCounts, {kHuge, 1, 1}, "groups[0]=2147483647"},
      {GroupLayout::kEnds, {8, 4, 12}, "groups[1]=4"},
      {GroupLayout::kEnds, {8, 9, 30}, "groups[1]=9"},
      {GroupLayout::kEnds, {8, 24, kHuge}, "groups[2]=2147483647"},
      {GroupLayout::kRowIds, {}, "groups[7]=3"},
      {GroupLayout::kRowIds, {}, "groups[7]=-2"},
      {GroupLayout::kRowIds, {}, "groups[20]=0"},
  };
  for (const BadNumbers& bad : cases) {
    SCOPED_TRACE(testing::Message() << Name(bad.layout) << " " << bad.message);
    for (DType dtype : {DType::kE4M3, DType::kF32}) {
      Scene scene;
      GroupedCase c = Fp8Case(bad.layout);
      c.dtype = dtype;
      if (dtype == DType::kF32) c.a_granularity = c.b_granularity = ScaleGranularity::kNone;
      c.n = c.k = 128;
      c.around = 0;
      c.rows = {24, 0, 0};
      GroupedScene grouped = MakeGrouped(scene, c);
      std::vector<int32_t> numbers = bad.numbers;
      if (bad.layout == GroupLayout::kRowIds) {
        numbers.assign(24, 0);
        std::fill(numbers.begin() + 12, numbers.end(), 2);
        const size_t at = bad.message.find("20") != std::string::npos ? 20 : 7;
        numbers[at] = std::stoi(bad.message.substr(bad.message.find('=') + 1));
      }
      if (bad.layout == GroupLayout::kRowIds) {
        numbers.resize(grouped.op.a.values.shape[0], -1);  // a row of padding, or none
      }
      grouped.op.groups = scene.Numbers(MakeDims({static_cast<int64_t>(numbers.size())}), numbers);
      const absl::StatusOr<Outcome> outcome = scene.TryRun(executor(), {Op(grouped.op)});
      EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument) << outcome.status();
      EXPECT_THAT(std::string(outcome.status().message()),
                  testing::AllOf(HasSubstr("(grouped_matmul)"), HasSubstr(bad.message)));
      // What serves others is none the worse for it.
      Check(executor(), Fp8Case(bad.layout));
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
