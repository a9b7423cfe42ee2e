// What the grouped kernels' self-test lets through, and what not; needs no device.

#include "kernels/cuda/grouped/grouped_self_test.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/grouped/grouped_op.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

// What the CPU makes of it, and every other byte as it was.
std::vector<std::byte> Right(const GroupedTrial& trial) {
  const auto backend = CreateCpuBackend({.threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status();
  std::vector<std::unique_ptr<Memory>> memory;
  Bindings bindings;
  for (const std::vector<std::byte>& slot : trial.slots()) {
    memory.push_back(*(*backend)->Allocate(static_cast<int64_t>(slot.size()), MemoryKind::kDevice));
    EXPECT_TRUE(memory.back()->CopyIn(0, slot).ok());
    bindings.slots.push_back(memory.back()->address());
  }
  const auto program = (*backend)->Compile({Op(trial.op())});
  EXPECT_TRUE(program.ok()) << program.status();
  absl::Notification done;
  (*backend)->CreateStream({})->Launch(*program, std::move(bindings), [&](LaunchResult result) {
    EXPECT_TRUE(result.status.ok()) << result.status;
    done.Notify();
  });
  done.WaitForNotification();
  std::vector<std::byte> result(trial.slots()[trial.result_slot()].size());
  EXPECT_TRUE(memory[trial.result_slot()]->CopyOut(0, absl::MakeSpan(result)).ok());
  return result;
}

class GroupedSelfTestTest : public testing::Test {
 protected:
  static const std::vector<GroupedTrial>& Trials() {
    static const auto* const trials = new std::vector<GroupedTrial>(GroupedTrials());
    return *trials;
  }
};

// Rows of each group, of layouts that tell them as they are.
std::vector<int> RowsOf(const GroupedTrial& trial) {
  const GroupedMatmulOp& op = trial.op();
  const std::vector<std::byte>& slot = trial.slots()[op.groups.slot];
  std::vector<int32_t> numbers(slot.size() / sizeof(int32_t));
  std::memcpy(numbers.data(), slot.data(), slot.size());
  if (op.layout == GroupLayout::kCounts) return {numbers.begin(), numbers.end()};
  std::vector<int> rows;
  if (op.layout == GroupLayout::kRowIds) {
    rows.resize(op.b.values.shape[0]);
    for (const int32_t group : numbers) {
      if (group >= 0) ++rows[group];
    }
    return rows;
  }
  int before = op.layout == GroupLayout::kEnds ? 0 : numbers[0];
  for (size_t i = op.layout == GroupLayout::kEnds ? 0 : 1; i < numbers.size(); ++i) {
    rows.push_back(numbers[i] - std::exchange(before, numbers[i]));
  }
  return rows;
}

TEST_F(GroupedSelfTestTest, EveryKernelAndEveryCutIsTried) {
  const auto of = [](std::string_view kernel) {
    std::vector<std::pair<RowsKernel, int>> forms;
    for (const GroupedForm& form : FormsOf(kernel)) forms.emplace_back(form.rows, form.grain);
    return forms;
  };
  const std::pair few(RowsKernel::kFew, kGrainThatFills), units(RowsKernel::kUnits, -1),
      pairs(RowsKernel::kPairs, -1), rests(RowsKernel::kRests, -1), wide(RowsKernel::kFew, 0),
      halves(RowsKernel::kFew, 1), thin(RowsKernel::kFew, 2);
  EXPECT_THAT(of(kFp8GroupedName),
              UnorderedElementsAre(few, wide, halves, thin, units, pairs, rests));
  EXPECT_THAT(of(kI8BlockGroupedName), UnorderedElementsAre(few, wide, halves, thin, units, pairs));
  EXPECT_THAT(of(kFp8GateName), UnorderedElementsAre(few, wide, halves, thin, rests));
  EXPECT_THAT(of(kAnyGroupedName), UnorderedElementsAre(few));
  EXPECT_THAT(of(kBf16GroupedName), UnorderedElementsAre(few));
}

TEST_F(GroupedSelfTestTest, EveryKindOfTileHasATrial) {
  bool any_k = false;
  std::set<std::pair<bool, bool>> kinds;  // gated, matrices apart
  bool rest[2][2] = {};                   // gated, of more than 16 rows
  bool few = false, half = false, units[2] = {};
  std::set<DType> types;
  int int8_blocks = 0, e4m3_by_row = 0;
  std::set<std::string_view> adjusted, activated;  // kernels
  for (const GroupedTrial& trial : Trials()) {
    EXPECT_EQ(WhyNotTma(trial.op()), "");
    const Dims& b = trial.op().b.values.shape;
    EXPECT_LT(ExpectedRows(trial.op()) * b[1] * b[2], 50'000'000) << "float64 takes its time";
    types.insert(trial.op().a.values.dtype);
    if (trial.op().activation == Activation::kRelu) adjusted.insert(TmaGroupedName(trial.op().a));
    if (trial.op().bias) activated.insert(TmaGroupedName(trial.op().a));
    if (TmaGroupedName(trial.op().a) == kI8BlockGroupedName) ++int8_blocks;
    if (TmaGroupedName(trial.op().a) == kFp8RowGroupedName) ++e4m3_by_row;
    if (TmaGroupedName(trial.op().a) != kFp8GroupedName) continue;
    const bool gated = trial.op().gate.has_value();
    EXPECT_TRUE(!gated || WhyNotFused(trial.op()).empty());
    kinds.emplace(gated, !trial.op().table.empty());
    any_k |= b[2] % 128 != 0;
    for (const int rows : RowsOf(trial)) {
      const int behind = PairCutOf(rows, true).rest;
      if (behind > 0) rest[gated][behind > kMostRest / 2] = true;
      few |= CutOf(rows).thin > 0;
      half |= CutOf(rows).wide > 0 && CutOf(rows).half > 0;
      if (rows > 0) units[ManyRowsCut(rows).whole > 0] = true;
    }
  }
  EXPECT_THAT(types, UnorderedElementsAre(DType::kE4M3, DType::kBF16, DType::kF16, DType::kI8));
  EXPECT_EQ(adjusted.size(), 6);
  EXPECT_EQ(activated.size(), 6);
  EXPECT_GE(int8_blocks, 4);
  EXPECT_GE(e4m3_by_row, 4);
  EXPECT_TRUE(few && half && any_k && units[false] && units[true]);
  for (const auto& widths : rest) EXPECT_TRUE(widths[false] && widths[true]);
  EXPECT_EQ(kinds.size(), 4);
}

TEST_F(GroupedSelfTestTest, AcceptsARoundedResult) {
  for (const GroupedTrial& trial : Trials()) EXPECT_EQ(trial.Judge(Right(trial)), "");
}

TEST_F(GroupedSelfTestTest, RefusesOneWrongElement) {
  for (const GroupedTrial& trial : Trials()) {
    std::vector<std::byte> result = Right(trial);
    trial.Spoil(absl::MakeSpan(result));
    EXPECT_THAT(trial.Judge(result), HasSubstr("1 of "));
  }
}

TEST_F(GroupedSelfTestTest, RefusesWhatIsWrittenOutside) {
  const GroupedTrial& trial = Trials().front();
  std::vector<std::byte> result = Right(trial);
  result.back() = std::byte{0};
  EXPECT_EQ(trial.Judge(result), "it wrote beyond the result");
  result = Right(trial);
  result[3] = std::byte{0};  // of the first row, which is nobody's
  EXPECT_THAT(trial.Judge(result), HasSubstr("of a row that is no group's"));
  result = Right(trial);
  EXPECT_THAT(trial.Judge(trial.slots()[trial.result_slot()]), HasSubstr("elements are wrong"));
}

}  // namespace
}  // namespace gemmd::kernels::cuda
