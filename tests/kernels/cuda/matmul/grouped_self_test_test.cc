// What the grouped kernels' self-test lets through, and what not; needs no device.

#include "kernels/cuda/grouped/grouped_self_test.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <tuple>
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

TEST_F(GroupedSelfTestTest, EveryKindOfTileHasATrial) {
  bool thin = false, wide = false, half = false, any_k = false, apart = false;
  bool rest[2][2] = {};                                  // gated, of more than 16 rows
  std::set<std::tuple<RowsKernel, bool, bool>> kernels;  // gated, matrices apart
  std::set<DType> types;
  std::set<RowsKernel> int8_kernels;  // of block scales
  for (const GroupedTrial& trial : Trials()) {
    EXPECT_EQ(WhyNotTma(trial.op()), "");
    const Dims& b = trial.op().b.values.shape;
    EXPECT_LT(ExpectedRows(trial.op()) * b[1] * b[2], 50'000'000) << "float64 takes its time";
    types.insert(trial.op().a.values.dtype);
    if (TmaGroupedName(trial.op().a) == kI8BlockGroupedName) {
      int8_kernels.insert(LayoutOf(trial.op(), true).rows);
    }
    if (trial.op().a.values.dtype != DType::kE4M3) continue;
    const bool gated = trial.op().gate.has_value();
    const RowsKernel kernel = LayoutOf(trial.op(), true, gated).rows;
    kernels.emplace(kernel, gated, !trial.op().table.empty());
    for (const int rows : RowsOf(trial)) {
      const int behind = kernel == RowsKernel::kRests ? PairCutOf(rows, true).rest : 0;
      if (behind > 0) rest[gated][behind > kMostRest / 2] = true;
    }
    if (kernel != RowsKernel::kFew) continue;
    for (const int rows : RowsOf(trial)) {
      const GroupCut cut = CutOf(rows);
      thin |= cut.thin > 0;
      wide |= cut.wide > 0;
      half |= cut.half > 0;
    }
    any_k |= b[2] % 128 != 0;
    apart |= !trial.op().table.empty();
  }
  EXPECT_THAT(types, UnorderedElementsAre(DType::kE4M3, DType::kBF16, DType::kF16, DType::kI8));
  EXPECT_TRUE(thin && wide && half && any_k && apart);
  EXPECT_THAT(int8_kernels,
              UnorderedElementsAre(RowsKernel::kFew, RowsKernel::kUnits, RowsKernel::kPairs));
  for (const auto& widths : rest) EXPECT_TRUE(widths[false] && widths[true]);
  for (const bool apart_too : {false, true}) {
    for (const bool gated : {false, true}) {
      EXPECT_TRUE(kernels.contains({RowsKernel::kFew, gated, apart_too}));
      EXPECT_TRUE(kernels.contains({RowsKernel::kRests, gated, apart_too}));
    }
    EXPECT_TRUE(kernels.contains({RowsKernel::kPairs, false, apart_too}));
    EXPECT_TRUE(kernels.contains({RowsKernel::kUnits, false, apart_too}));
  }
  // Some with a gate that is fused, of few rows and of many.
  EXPECT_TRUE(std::any_of(Trials().begin(), Trials().end(), [](const GroupedTrial& trial) {
    return trial.op().gate && WhyNotFused(trial.op()).empty();
  }));
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
