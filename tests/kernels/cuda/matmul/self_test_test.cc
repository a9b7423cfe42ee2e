// What the self-test lets through, and what not; needs no device.

#include "kernels/cuda/matmul/self_test.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/matmul/gemm_op.h"
#include "kernels/cuda/matmul/legality.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

class SelfTestTest : public testing::Test {
 protected:
  // The float64 result of `op` as BF16, with the bytes beyond d untouched.
  std::vector<std::byte> Result(const MatmulOp& op) const { return ResultOf(problem_, op); }
  static std::vector<std::byte> ResultOf(const SelfTestProblem& problem, const MatmulOp& op) {
    std::vector<std::vector<std::byte>> slots(problem.slots().begin(), problem.slots().end());
    Bindings bindings;
    for (std::vector<std::byte>& slot : slots) bindings.slots.push_back(slot.data());
    std::vector<std::byte> result = slots[SelfTestProblem::kResultSlot];
    const std::vector<double> values = ReferenceMatmul(op, bindings);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      bits >>= 16;
      std::memcpy(&result[2 * i], &bits, 2);
    }
    return result;
  }
  std::vector<std::byte> Right() const { return Result(problem_.op()); }

  const SelfTestProblem problem_{Mma::kFp8Block, AllVariants()};
};

TEST_F(SelfTestTest, EveryMemberOfThePoolServesTheProblemOfItsKind) {
  std::vector<std::byte*> slots;
  for (uintptr_t i = 1; i <= problem_.slots().size(); ++i) {
    slots.push_back(reinterpret_cast<std::byte*>(i << 20));
  }
  for (Mma mma :
       {Mma::kFp8Block, Mma::kBf16, Mma::kF16, Mma::kI8, Mma::kI8Block, Mma::kFp8Row, Mma::kF32}) {
    const SelfTestProblem problem(mma, AllVariants());
    EXPECT_EQ(CopiesOf(ArgsOf(problem.op(), slots)).scratch_bytes, 0);
    const GemmArgs args = GemmArgsOf(ArgsOf(problem.op(), slots), ScaleCopies(), nullptr);
    for (const GemmVariant& variant : AllVariants()) {
      if (variant.shape().mma != mma) continue;
      EXPECT_EQ(WhyNot(variant, args), "") << Name(variant);
      EXPECT_EQ(WhyNot(variant, ProblemOf(problem.op())), "") << Name(variant);
    }
  }
}

// Each type's random numbers are finite, and a result that lacks its last k block does not pass.
TEST_F(SelfTestTest, EveryKindsProblemTellsRightFromWrong) {
  for (Mma mma : {Mma::kBf16, Mma::kF16, Mma::kI8, Mma::kI8Block, Mma::kFp8Row, Mma::kF32}) {
    const SelfTestProblem problem(mma, AllVariants());
    const auto judge = [&](const MatmulOp& op) { return problem.Judge(ResultOf(problem, op)); };
    MatmulOp op = problem.op();
    EXPECT_EQ(judge(op), "") << static_cast<int>(mma);
    const GemmConfig kind = {.mma = mma};
    op.a.values.shape[1] -= kind.block_k();
    op.b.values.shape[1] -= kind.block_k();
    EXPECT_NE(judge(op), "") << static_cast<int>(mma);
  }
}

TEST_F(SelfTestTest, IsSmall) {
  // A second for some 165 kernels, of which the CPU's float64 takes part: 1e8 products at most.
  const Dims& a = problem_.op().a.values.shape;
  EXPECT_LT(a[0] * a[1] * SelfTestProblem::kN, 100'000'000);
}

TEST_F(SelfTestTest, AcceptsARoundedResult) { EXPECT_EQ(problem_.Judge(Right()), ""); }

TEST_F(SelfTestTest, RefusesOneWrongElement) {
  std::vector<std::byte> result = Right();
  problem_.Spoil(absl::MakeSpan(result));
  EXPECT_THAT(problem_.Judge(result), HasSubstr("1 of 14400 elements are wrong: element ("));
}

TEST_F(SelfTestTest, RefusesAnElementThatWasNotWritten) {
  std::vector<std::byte> result = Right();
  result[100] = result[101] = std::byte{0xff};
  EXPECT_THAT(problem_.Judge(result), HasSubstr("element (0, 50) is"));
}

TEST_F(SelfTestTest, RefusesAStoreOutsideOfTheResult) {
  std::vector<std::byte> result = Right();
  result[result.size() - SelfTestProblem::kGuardBytes] = std::byte{0};
  EXPECT_THAT(problem_.Judge(result), HasSubstr("beyond the result"));
  result.pop_back();
  EXPECT_THAT(problem_.Judge(result), HasSubstr("another size"));
}

TEST_F(SelfTestTest, RefusesABlockOfKThatWasForgotten) {
  MatmulOp op = problem_.op();
  op.a.values.shape[1] -= 128;
  op.b.values.shape[1] -= 128;
  op.a.scales->shape[1] -= 1;
  op.b.scales->shape[1] -= 1;
  EXPECT_NE(problem_.Judge(Result(op)), "");
}

TEST_F(SelfTestTest, RefusesScalesOfAnotherBlock) {
  MatmulOp op = problem_.op();
  op.b.scales->strides[0] = 0;  // the second block of rows takes the first one's
  EXPECT_NE(problem_.Judge(Result(op)), "");
}

}  // namespace
}  // namespace gemmd::kernels::cuda
