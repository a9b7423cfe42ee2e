// Grouped matmuls by weights along their rows, [groups, k, n], in BF16 and FP16.

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/grouped/grouped_direct.h"
#include "tests/kernels/cuda/matmul/grouped_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::GroupedCase;
using contract::GroupedScene;
using contract::Outcome;
using contract::Placement;
using contract::Scene;

class GroupedAlongRowsGpuTest : public GroupedGpuTest<DType> {
 protected:
  GroupedCase Case(GroupLayout layout, std::vector<int64_t> rows, int64_t n, int64_t k) const {
    return {.layout = layout,
            .rows = std::move(rows),
            .n = n,
            .k = k,
            .alignment = 8,
            .dtype = GetParam(),
            .out = GetParam(),
            .b = Placement::kColumnMajor};
  }
  void Check(const GroupedCase& c) {
    Scene scene;
    const GroupedScene grouped = MakeGrouped(scene, c);
    SCOPED_TRACE(ToString(c) + " seed " + std::to_string(scene.seed()));
    const Outcome outcome = CheckGrouped(*executor_, scene, grouped);
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_EQ(outcome.kernels[0], TmaGroupedName(grouped.op.a));
    for (int run = 1; run < 3; ++run) {
      const Outcome again = scene.Run(*executor_, Op(grouped.op));
      EXPECT_TRUE(again.slots[grouped.op.d.slot] == outcome.slots[grouped.op.d.slot]);
    }
  }
};

TEST_P(GroupedAlongRowsGpuTest, GroupsOfEverySizeInEveryLayout) {
  for (const GroupLayout layout : kEveryLayout) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{264, 144}, {1000, 1032}, {72, 4096}}) {
      for (const bool table : {false, true}) {
        GroupedCase c = Case(layout, {3, 0, 17, 70, 130, 200, 300, 64}, n, k);
        c.table = table;
        Check(c);
      }
    }
  }
}

TEST_P(GroupedAlongRowsGpuTest, OtherResultsThanTheirOwn) {
  for (const DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const bool bias : {false, true}) {
      GroupedCase c = Case(GroupLayout::kOffsets, {40, 5, 0, 150}, 328, 272);
      c.out = out;
      c.bias = bias;
      c.d = Placement::kPadded;
      Check(c);
    }
  }
}

TEST_P(GroupedAlongRowsGpuTest, ManyTilesOfLargeGroups) {
  for (const int64_t k : {48, 640}) Check(Case(GroupLayout::kOffsets, {1100, 300, 3}, 4104, k));
}

INSTANTIATE_TEST_SUITE_P(Types, GroupedAlongRowsGpuTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(Name(info.param));
                         });

}  // namespace
}  // namespace gemmd::kernels::cuda
