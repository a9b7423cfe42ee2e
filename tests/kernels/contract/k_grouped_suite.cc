// Gradients of weights: E4M3 and E5M2 multiplied by each other, and products over groups of
// columns, each against float64; what happens to columns and numbers that cannot be.

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "gmock/gmock.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/k_grouped.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

using testing::HasSubstr;

constexpr GroupLayout kColumnLayouts[] = {GroupLayout::kOffsets, GroupLayout::kEnds};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct KGroupedCase {
  std::vector<int64_t> ks = {128, 0, 256};  // of each group
  int64_t m = 24;
  int64_t n = 40;
  GroupLayout layout = GroupLayout::kEnds;
  int64_t alignment = 128;  // of groups' starts, in either layout
  DType a = DType::kE4M3;
  DType b = DType::kE5M2;
  DType out = DType::kF32;
  ScaleGranularity granularity = ScaleGranularity::kBlock1x128;
  Placement placement = Placement::kDense;
  bool along_rows = false;  // a and b are [k, rows] in memory
  bool by_columns = true;   // scales of 1x128 with rows next to each other
  float beta = 0;
  bool c_is_d = false;
};

struct KGroupedScene {
  KGroupedMatmulOp op;
  std::vector<GroupColumns> groups;
};

// Random columns behind the groups' ends as well, up to the next one's start.
KGroupedScene MakeKGrouped(Scene& scene, const KGroupedCase& c) {
  KGroupedScene made;
  KGroupedMatmulOp& op = made.op;
  std::vector<int32_t> numbers;
  int64_t end = 0;
  // Offsets leave no room between groups: one that does not end at a multiple is the last.
  for (const int64_t k : c.ks) {
    const int64_t first = k == 0 ? end : (end + c.alignment - 1) / c.alignment * c.alignment;
    made.groups.push_back({first, k});
    if (c.layout == GroupLayout::kOffsets) numbers.push_back(static_cast<int32_t>(first));
    end = first + k;
    if (c.layout == GroupLayout::kEnds) numbers.push_back(static_cast<int32_t>(end));
  }
  if (c.layout == GroupLayout::kOffsets) numbers.push_back(static_cast<int32_t>(end));
  const int64_t k = std::max<int64_t>(end + 7, 16) / 16 * 16 + 16;
  const auto groups = static_cast<int64_t>(c.ks.size());
  op.layout = c.layout;
  op.alignment = c.layout == GroupLayout::kEnds ? c.alignment : 1;
  const Placement operands = c.along_rows ? Placement::kTransposed : c.placement;
  op.a = scene.RandomOperand(c.a, MakeDims({c.m, k}), c.granularity, operands);
  op.b = scene.RandomOperand(c.b, MakeDims({c.n, k}), c.granularity, operands);
  if (c.by_columns && c.granularity == ScaleGranularity::kBlock1x128) {
    for (Operand* operand : {&op.a, &op.b}) {
      const int64_t rows = operand->values.shape[0];
      TensorRef scales =
          scene.Random(DType::kF32, MakeDims({operand->scales->shape[1], (rows + 3) / 4 * 4}));
      scales.shape = operand->scales->shape;
      scales.strides = MakeDims({1, (rows + 3) / 4 * 4});
      operand->scales = scales;
    }
  }
  op.groups = scene.Numbers(MakeDims({static_cast<int64_t>(numbers.size())}), numbers);
  const Dims d = MakeDims({groups, c.m, c.n});
  op.beta = c.beta;
  if (c.c_is_d) {
    op.d = scene.Random(c.out, d, c.placement);
    op.c = op.d;
  } else {
    op.d = scene.Poisoned(c.out, d, c.placement);
    if (c.beta != 0) op.c = scene.Random(c.out, d, c.placement);
  }
  op.alpha = std::min(AlphaWithin(c.out, c.a), AlphaWithin(c.out, c.b));
  return made;
}

Outcome CheckKGrouped(Executor& executor, Scene& scene, const KGroupedScene& grouped) {
  Outcome outcome = scene.Run(executor, Op(grouped.op));
  const std::string kernel = outcome.kernels.empty() ? "?" : outcome.kernels[0];
  for (size_t g = 0; g < grouped.groups.size(); ++g) {
    const MatmulOp matmul = MatmulOf(grouped.op, static_cast<int64_t>(g), grouped.groups[g]);
    EXPECT_LE(Error(scene, outcome, matmul), Bound(matmul, kernel))
        << "group " << g << " of k=" << grouped.groups[g].k << " by " << kernel << ", seed "
        << scene.seed();
  }
  ExpectOnlyElementsWritten(scene, outcome, grouped.op.d);
  return outcome;
}

void CheckColumns(Executor& executor, const KGroupedCase& c, uint64_t seed = 0) {
  SCOPED_TRACE(testing::Message() << Name(c.layout) << " m=" << c.m << " n=" << c.n << " "
                                  << Name(c.a) << " " << Name(c.b) << " -> " << Name(c.out) << " "
                                  << Name(c.granularity) << " " << Name(c.placement) << " beta "
                                  << c.beta << " groups " << testing::PrintToString(c.ks));
  Scene scene(seed);
  CheckKGrouped(executor, scene, MakeKGrouped(scene, c));
}

TEST_P(ContractTest, E4M3MultipliesE5M2) {
  Scene seeds;
  for (const auto& [a, b] : {std::pair{DType::kE4M3, DType::kE5M2}, {DType::kE5M2, DType::kE4M3}}) {
    for (ScaleGranularity granularity :
         {ScaleGranularity::kNone, ScaleGranularity::kPerRow, ScaleGranularity::kBlock1x128}) {
      for (int64_t m : {1, 70}) {
        Scene scene(seeds.random()());
        MatmulCase c{m, 96, 400};
        c.dtype = a;
        c.a_granularity = c.b_granularity = granularity;
        MatmulOp op = MakeMatmul(scene, c);
        op.b = scene.RandomOperand(b, MakeDims({96, 400}), granularity);
        ExpectMatchesReference(executor(), scene, op);
      }
    }
  }
}

// E5M2 has them, and they come through as IEEE 754 has it.
TEST_P(ContractTest, InfinitiesAndNaNsOfE5M2AreMultiplied) {
  Scene scene;
  MatmulCase c{33, 40, 300};
  c.dtype = DType::kE5M2;
  c.a_granularity = c.b_granularity = ScaleGranularity::kBlock1x128;
  const MatmulOp op = MakeMatmul(scene, c);
  for (int64_t j = 0; j < 40; ++j) scene.Set(op.b.values, {j, 7}, j % 2 == 0 ? 1 : -1);
  scene.Set(op.a.values, {3, 7}, kInfinity);
  scene.Set(op.a.values, {5, 7}, -kInfinity);
  scene.Set(op.a.values, {9, 130}, std::nan(""));
  const std::vector<double> d = Values(scene.Run(executor(), Op(op)), op.d);
  for (int64_t i = 0; i < 33; ++i) {
    for (int64_t j = 0; j < 40; ++j) {
      const double value = d[i * 40 + j];
      if (i == 9) {
        ASSERT_TRUE(std::isnan(value)) << i << " " << j;
      } else if (i == 3 || i == 5) {
        ASSERT_EQ(value, (i == 3) == (j % 2 == 0) ? kInfinity : -kInfinity) << i << " " << j;
      } else {
        ASSERT_TRUE(std::isfinite(value)) << i << " " << j;
      }
    }
  }
}

TEST_P(ContractTest, GroupsOfColumnsTakeAnyK) {
  Scene seeds;
  for (const auto& [a, b] : {std::pair{DType::kE4M3, DType::kE5M2},
                             {DType::kE4M3, DType::kE4M3},
                             {DType::kE5M2, DType::kE4M3},
                             {DType::kE5M2, DType::kE5M2}}) {
    for (DType out : {DType::kF32, DType::kBF16}) {
      KGroupedCase c{.a = a, .b = b, .out = out};
      CheckColumns(executor(), c, seeds.random()());
      c.ks = {0, 1, 127, 128, 129, 1000};
      c.m = 136;
      c.n = 264;
      CheckColumns(executor(), c, seeds.random()());
    }
  }
}

TEST_P(ContractTest, GroupsOfColumnsTakeOffsets) {
  KGroupedCase c{.layout = GroupLayout::kOffsets};
  c.ks = {256, 0, 128, 77};
  CheckColumns(executor(), c);
  c.ks = {0, 0};
  CheckColumns(executor(), c);
}

TEST_P(ContractTest, GroupsOfColumnsAreAddedToC) {
  Scene seeds;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (bool c_is_d : {false, true}) {
      for (float beta : {1.0f, 0.5f}) {
        KGroupedCase c{.out = out, .beta = beta, .c_is_d = c_is_d};
        c.ks = {0, 129, 0, 384};
        c.m = 130;
        c.n = 136;
        CheckColumns(executor(), c, seeds.random()());
      }
    }
  }
}

// More tiles than a GPU has multiprocessors, so that a C is fetched behind a tile that is stored.
TEST_P(ContractTest, ManyGroupsOfColumnsAreAddedToC) {
  Scene seeds;
  KGroupedCase c{.m = 260, .n = 264};
  for (int i = 0; i < 10; ++i) c.ks.insert(c.ks.end(), {128, 0, 130, 800});
  for (const auto& [out, beta, c_is_d] : {std::tuple{DType::kBF16, 0.5f, false},
                                          {DType::kBF16, 1.0f, true},
                                          {DType::kF32, 0.5f, true},
                                          {DType::kF16, 0.0f, false}}) {
    c.out = out;
    c.beta = beta;
    c.c_is_d = c_is_d;
    if (Takes()) CheckColumns(executor(), c, seeds.random()());
  }
}

// Along k, or along their rows as the activations and gradients of a layer lie. Groups start
// anywhere.
TEST_P(ContractTest, GroupsOfColumnsOf16BitsTakeAnyK) {
  Scene seeds;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (DType out : {DType::kF32, dtype}) {
      for (bool along_rows : {false, true}) {
        for (const auto& [beta, c_is_d] : {std::pair{0.0f, false}, {1.0f, true}, {0.5f, false}}) {
          KGroupedCase c{.a = dtype,
                         .b = dtype,
                         .out = out,
                         .granularity = ScaleGranularity::kNone,
                         .along_rows = along_rows,
                         .beta = beta,
                         .c_is_d = c_is_d};
          c.ks = {0, 1, 63, 64, 65, 300};
          c.m = 264;
          c.n = 136;
          c.alignment = 1;
          if (Takes()) CheckColumns(executor(), c, seeds.random()());
          c.layout = GroupLayout::kOffsets;
          c.ks = {127, 129, 0, 512};
          c.m = 104;
          c.n = 392;
          if (Takes()) CheckColumns(executor(), c, seeds.random()());
        }
      }
    }
  }
}

TEST_P(ContractTest, GroupsOfColumnsOfEveryTypeLieAnywhere) {
  Scene seeds;
  for (const DTypeInfo& info : kDTypes) {
    for (Placement placement : kPlacements) {
      for (GroupLayout layout : kColumnLayouts) {
        KGroupedCase c{.layout = layout, .a = info.dtype, .b = info.dtype, .placement = placement};
        c.granularity = ScaleGranularity::kNone;
        c.alignment = layout == GroupLayout::kEnds ? 8 : 1;
        c.ks = {5, 0, 64, 33};
        if (Takes()) CheckColumns(executor(), c, seeds.random()());
        if (SizeBytes(info.dtype) != 1) continue;
        c.granularity = ScaleGranularity::kPerRow;
        if (Takes()) CheckColumns(executor(), c, seeds.random()());
        c.granularity = ScaleGranularity::kBlock1x128;
        c.alignment = 128;
        c.ks = layout == GroupLayout::kEnds ? std::vector<int64_t>{5, 0, 64, 133}
                                            : std::vector<int64_t>{128, 0, 133};
        c.by_columns = false;
        if (Takes()) CheckColumns(executor(), c, seeds.random()());
      }
    }
  }
}

TEST_P(ContractTest, GroupsOfColumnsAreOfAnySize) {
  Scene seeds;
  for (int i = 0; i < GetParam().random_shapes / 5; ++i) {
    Scene draw(seeds.random()());
    KGroupedCase c;
    c.m = draw.Between(1, 40) * 8;
    c.n = draw.Between(1, 40) * 8;
    c.out = draw.Between(0, 1) == 0 ? DType::kF32 : DType::kBF16;
    c.beta = static_cast<float>(draw.Between(0, 1));
    c.c_is_d = draw.Between(0, 1) == 0;
    c.ks.assign(static_cast<size_t>(draw.Between(1, 8)), 0);
    for (int64_t& k : c.ks) k = draw.Between(0, 3) == 0 ? 0 : draw.Between(1, 700);
    CheckColumns(executor(), c, draw.random()());
  }
}

// Between a group's end and the next one's start lies what nobody wrote.
TEST_P(ContractTest, ColumnsOfNobodyDoNotSpread) {
  for (const auto& [dtype, along_rows] : {std::pair{DType::kE4M3, false},
                                          {DType::kE5M2, false},
                                          {DType::kBF16, false},
                                          {DType::kBF16, true}}) {
    Scene scene;
    KGroupedCase c{.a = dtype, .b = dtype, .along_rows = along_rows};
    if (dtype == DType::kBF16) c.granularity = ScaleGranularity::kNone;
    c.ks = {1, 127, 0, 130};
    c.m = 72;
    c.n = 136;
    const KGroupedScene grouped = MakeKGrouped(scene, c);
    const int64_t k = grouped.op.a.values.shape[1];
    for (int64_t x = 0; x < k; ++x) {
      bool used = false;
      for (const GroupColumns& group : grouped.groups) {
        used = used || (x >= group.first && x < group.first + group.k);
      }
      if (used) continue;
      for (int64_t i = 0; i < c.m; ++i) scene.Set(grouped.op.a.values, {i, x}, std::nan(""));
      for (int64_t j = 0; j < c.n; ++j) scene.Set(grouped.op.b.values, {j, x}, std::nan(""));
    }
    CheckKGrouped(executor(), scene, grouped);
  }
}

TEST_P(ContractTest, LayoutsOfColumnsAgree) {
  Scene scene;
  KGroupedCase c;
  c.ks = {128, 256, 128};
  c.m = c.n = 192;
  const KGroupedScene by_ends = MakeKGrouped(scene, c);
  const Outcome first = CheckKGrouped(executor(), scene, by_ends);
  KGroupedMatmulOp op = by_ends.op;
  op.layout = GroupLayout::kOffsets;
  op.alignment = 1;
  op.groups = scene.Numbers(MakeDims({4}), {0, 128, 384, 512});
  EXPECT_TRUE(scene.Run(executor(), Op(op)).slots[op.d.slot] == first.slots[op.d.slot]);
}

struct BadColumnNumbers {
  GroupLayout layout;
  std::vector<int32_t> numbers;
  std::string message;
  std::vector<bool> empty;  // which groups the numbers leave without columns
};

TEST_P(ContractTest, NumbersOfColumnsThatCannotBeEndTheRun) {
  constexpr int32_t kHuge = 0x7fffffff;
  const BadColumnNumbers cases[] = {
      // three groups of 400 columns
      {GroupLayout::kOffsets, {-1, 128, 256, 384}, "groups[0]=-1", {true, false, false}},
      {GroupLayout::kOffsets, {0, 256, 128, 384}, "groups[2]=128", {false, true, false}},
      {GroupLayout::kOffsets, {0, 128, 256, 401}, "groups[3]=401", {false, false, true}},
      {GroupLayout::kOffsets, {0, kHuge, kHuge, kHuge}, "groups[1]=2147483647", {true, true, true}},
      {GroupLayout::kOffsets,
       {0, 130, 256, 300},
       "group 1 starts at column 130",
       {false, true, false}},
      {GroupLayout::kEnds, {256, 128, 384}, "groups[1]=128", {false, true, false}},
      {GroupLayout::kEnds, {1, 129, 401}, "groups[2]=401", {false, false, true}},
      {GroupLayout::kEnds, {128, kHuge, 256}, "groups[1]=2147483647", {false, true, false}},
  };
  for (const BadColumnNumbers& bad : cases) {
    SCOPED_TRACE(testing::Message() << Name(bad.layout) << " " << bad.message);
    Scene scene;
    KGroupedCase c{.layout = bad.layout, .beta = 1, .c_is_d = true};
    c.ks = {128, 128, 112};
    KGroupedScene grouped = MakeKGrouped(scene, c);
    for (auto [operand, rows] : {std::pair{&grouped.op.a, c.m}, {&grouped.op.b, c.n}}) {
      *operand = scene.RandomOperand(operand->values.dtype, MakeDims({rows, 400}), c.granularity);
    }
    grouped.op.groups =
        scene.Numbers(MakeDims({static_cast<int64_t>(bad.numbers.size())}), bad.numbers);
    const absl::StatusOr<Outcome> outcome = scene.TryRun(executor(), {Op(grouped.op)});
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()),
                testing::AllOf(HasSubstr("(k_grouped_matmul)"), HasSubstr(bad.message)));
    DataFault fault;
    const std::vector<GroupColumns> found = ReadColumns(grouped.op, bad.numbers.data(), fault);
    for (size_t g = 0; g < 3; ++g) EXPECT_EQ(found[g].k == 0, bad.empty[g]) << g;
    CheckColumns(executor(),
                 {.layout = bad.layout});  // what serves others is none the worse for it
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
