// What the grouped kernels' self-test lets through, and what not; needs no device.

#include "kernels/cuda/matmul/grouped_self_test.h"

#include <cstring>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/matmul/grouped_op.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

// Each group's float64 result as BF16, and every other byte as it was.
std::vector<std::byte> Right(const GroupedTrial& trial) {
  std::vector<std::vector<std::byte>> slots(trial.slots().begin(), trial.slots().end());
  Bindings bindings;
  for (std::vector<std::byte>& slot : slots) bindings.slots.push_back(slot.data());
  const GroupedMatmulOp& op = trial.op();
  DataFault fault;
  const auto* numbers = reinterpret_cast<const int32_t*>(slots[op.groups.slot].data());
  const std::vector<GroupRows> groups = ReadGroups(op, numbers, fault);
  EXPECT_EQ(fault.kind, DataFaultKind::kNone);
  std::vector<std::byte> result = slots[trial.result_slot()];
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].rows == 0) continue;
    const MatmulOp matmul = MatmulOf(op, static_cast<int64_t>(g), groups[g]);
    const std::vector<double> values = ReferenceMatmul(matmul, bindings);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      bits >>= 16;
      std::memcpy(&result[matmul.d.offset_bytes + 2 * i], &bits, 2);
    }
  }
  return result;
}

class GroupedSelfTestTest : public testing::Test {
 protected:
  static const std::vector<GroupedTrial>& Trials() {
    static const auto* const trials = new std::vector<GroupedTrial>(GroupedTrials());
    return *trials;
  }
};

TEST_F(GroupedSelfTestTest, EveryKernelHasATrial) {
  bool wide = false, thin_any_k = false, thin = false, apart = false;
  for (const GroupedTrial& trial : Trials()) {
    EXPECT_EQ(WhyNotFp8(trial.op()), "");
    const GroupedLayout layout = LayoutOf(trial.op(), true);
    wide |= layout.may_be_wide;
    thin |= layout.thin_config == kThinConfig;
    thin_any_k |= layout.thin_config == kThinAnyKConfig;
    apart |= !trial.op().table.empty();
    const Dims& b = trial.op().b.values.shape;
    EXPECT_LT(ExpectedRows(trial.op()) * b[1] * b[2], 50'000'000) << "float64 takes its time";
  }
  EXPECT_TRUE(wide && thin && thin_any_k && apart);
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
