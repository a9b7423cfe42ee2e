// Grouped matmuls whose matrices lie apart: each group's rows against float64, and bit for bit what
// the same matrices in one tensor give.

#include <algorithm>

#include "gmock/gmock.h"
#include "tests/kernels/contract/grouped_case.h"

namespace gemmd::kernels::contract {
namespace {

using testing::HasSubstr;

constexpr GroupLayout kTableLayouts[] = {GroupLayout::kOffsets, GroupLayout::kCounts,
                                         GroupLayout::kRowIds, GroupLayout::kEnds};

GroupedCase TableCase(GroupLayout layout) {
  return {.layout = layout,
          .alignment = 16,
          .dtype = DType::kE4M3,
          .out = DType::kBF16,
          .a_granularity = ScaleGranularity::kBlock1x128,
          .b_granularity = ScaleGranularity::kBlock128x128,
          .table = true};
}

void CheckTable(Executor& executor, const GroupedCase& c, uint64_t seed) {
  SCOPED_TRACE(ToString(c));
  Scene scene(seed);
  CheckGrouped(executor, scene, MakeGrouped(scene, c));
}

// The op with the matrices of `b` told one by one.
GroupedMatmulOp Apart(GroupedMatmulOp op) {
  std::vector<Operand> table;
  for (int64_t g = 0; g < op.b.values.shape[0]; ++g) table.push_back(MatrixOf(op, g));
  op.table = std::move(table);
  op.b = StackOf(op.table[0], static_cast<int64_t>(op.table.size()));
  return op;
}

const Bytes& ResultOf(const Outcome& outcome, const GroupedMatmulOp& op) {
  return outcome.slots[op.d.slot];
}

TEST_P(ContractTest, TablesMultiplyTheirOwnMatrices) {
  Scene seeds;
  for (GroupLayout layout : kTableLayouts) {
    for (const DTypeInfo& info : kDTypes) {
      GroupedCase c{.layout = layout, .alignment = 8, .dtype = info.dtype, .table = true};
      CheckTable(executor(), c, seeds.random()());
      c.rows = {0, 17, 1, 66, 130};
      c.n = 72;
      c.k = 200;
      c.out = DType::kBF16;
      c.bias = true;
      CheckTable(executor(), c, seeds.random()());
    }
  }
}

TEST_P(ContractTest, TablesOfFp8TakeBlockScales) {
  Scene seeds;
  for (GroupLayout layout : kTableLayouts) {
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{256, 512}, {384, 384}, {200, 272}, {136, 130}}) {
      GroupedCase c = TableCase(layout);
      c.n = n;
      c.k = k;
      for (const std::vector<int64_t>& rows :
           {std::vector<int64_t>{64, 128, 0, 1}, {300, 7, 129}, {1, 2, 3, 4, 5, 63, 65}}) {
        c.rows = rows;
        if (Takes()) CheckTable(executor(), c, seeds.random()());
      }
    }
  }
}

TEST_P(ContractTest, TablesTakeEveryGranularityAndPlacement) {
  Scene seeds;
  for (ScaleGranularity granularity :
       {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow,
        ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128}) {
    for (Placement placement : kPlacements) {
      GroupedCase c = TableCase(kTableLayouts[seeds.Between(0, 3)]);
      c.b_granularity = granularity;
      c.b = placement;
      c.n = 144;
      c.k = 260;
      c.rows = {9, 0, 70};
      CheckTable(executor(), c, seeds.random()());
    }
  }
}

TEST_P(ContractTest, TablesHaveAsManyMatricesAsThereMayBeGroups) {
  GroupedCase c = TableCase(GroupLayout::kOffsets);
  c.n = c.k = 128;
  c.rows.assign(kMaxGroups, 1);
  c.rows[300] = 70;
  c.rows[130] = 0;
  CheckTable(executor(), c, 3);
  c.rows = {129};
  CheckTable(executor(), c, 4);
}

// The same matrices, in one tensor or told one by one, in every layout.
TEST_P(ContractTest, TablesAgreeWithTheTensorBitForBit) {
  for (GroupLayout layout : kTableLayouts) {
    for (DType dtype : {DType::kE4M3, DType::kBF16}) {
      Scene scene;
      GroupedCase c = TableCase(layout);
      c.table = false;
      c.dtype = dtype;
      if (dtype != DType::kE4M3) c.a_granularity = c.b_granularity = ScaleGranularity::kNone;
      c.n = c.k = 256;
      c.rows = {70, 0, 64, 1, 130};
      const GroupedMatmulOp op = MakeGrouped(scene, c).op;
      const Outcome one = scene.Run(executor(), Op(op));
      const Outcome apart = scene.Run(executor(), Op(Apart(op)));
      EXPECT_EQ(one.kernels, apart.kernels);
      EXPECT_TRUE(ResultOf(one, op) == ResultOf(apart, op)) << Name(layout) << Name(dtype);
    }
  }
}

TEST_P(ContractTest, OneMatrixMayServeEveryGroup) {
  Scene scene;
  GroupedCase c = TableCase(GroupLayout::kOffsets);
  c.n = c.k = 256;
  c.rows = {30, 100, 5};
  GroupedScene grouped = MakeGrouped(scene, c);
  grouped.op.table[0] = grouped.op.table[2] = grouped.op.table[1];
  grouped.op.b = StackOf(grouped.op.table[0], 3);
  CheckGrouped(executor(), scene, grouped);
}

// Programs of several tables, one behind the other, and many times: what one of them made of its
// table is never another's.
TEST_P(ContractTest, TablesOfOneProgramKeepApart) {
  Scene scene;
  GroupedCase c = TableCase(GroupLayout::kOffsets);
  c.n = c.k = 256;
  c.rows = {30, 100, 0, 5};
  std::vector<GroupedScene> scenes;
  std::vector<Op> ops;
  std::vector<Bytes> alone;
  for (int i = 0; i < 4; ++i) {
    scenes.push_back(MakeGrouped(scene, c));
    // The same operands in another order of matrices, too.
    GroupedScene turned = scenes.back();
    std::rotate(turned.op.table.begin(), turned.op.table.begin() + 1, turned.op.table.end());
    turned.op.b = StackOf(turned.op.table[0], 4);
    turned.op.d = scene.Poisoned(c.out, turned.op.d.shape);
    scenes.push_back(turned);
  }
  for (const GroupedScene& one : scenes) {
    ops.emplace_back(one.op);
    alone.push_back(ResultOf(CheckGrouped(executor(), scene, one), one.op));
  }
  for (int run = 0; run < 20; ++run) {
    if (!Takes()) continue;
    const absl::StatusOr<Outcome> together = scene.TryRun(executor(), ops);
    ASSERT_TRUE(together.ok()) << together.status();
    for (size_t i = 0; i < scenes.size(); ++i) {
      ASSERT_TRUE(ResultOf(*together, scenes[i].op) == alone[i]) << "op " << i << " run " << run;
    }
  }
}

TEST_P(ContractTest, TablesAreGatedBitForBitAsTheTensor) {
  for (GroupLayout layout : kTableLayouts) {
    Scene scene;
    GroupedCase c = TableCase(layout);
    c.table = false;
    c.n = 384;
    c.k = 256;
    c.rows = {30, 0, 65, 1};
    GroupedMatmulOp op = MakeGrouped(scene, c).op;
    Dims half = op.d.shape;
    half[half.rank - 1] /= 2;
    op.d = scene.Poisoned(DType::kE4M3, half);
    op.d_scales = scene.Poisoned(DType::kF32, ScaleShape(half, ScaleGranularity::kBlock1x128));
    op.gate = Gate{};
    op.alpha = 1e-4f;
    const Outcome one = scene.Run(executor(), Op(op));
    const Outcome apart = scene.Run(executor(), Op(Apart(op)));
    EXPECT_TRUE(ResultOf(one, op) == ResultOf(apart, op));
    EXPECT_TRUE(one.slots[op.d_scales->slot] == apart.slots[op.d_scales->slot]);
    EXPECT_FALSE(ResultOf(one, op) == scene.slots()[op.d.slot]);
  }
}

TEST_P(ContractTest, TablesThatAreUnlikeAreRefused) {
  Scene scene;
  GroupedCase c = TableCase(GroupLayout::kOffsets);
  c.n = c.k = 128;
  const GroupedMatmulOp op = MakeGrouped(scene, c).op;
  const auto refused = [&](auto change, const char* message) {
    GroupedMatmulOp bad = op;
    change(bad);
    bad.b = StackOf(bad.table[0], static_cast<int64_t>(bad.table.size()));
    const absl::Status status = scene.TryRun(executor(), {Op(bad)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  refused([](auto& bad) { bad.table[1].values.shape[0] = 64; }, "weights[1] has shape [64, 128]");
  refused([&](auto& bad) { bad.table[2].values = op.d; }, "weights[2]");
  refused([](auto& bad) { bad.table[1].values.offset_bytes = 1 << 30; }, "weights[1]");
}

}  // namespace
}  // namespace gemmd::kernels::contract
