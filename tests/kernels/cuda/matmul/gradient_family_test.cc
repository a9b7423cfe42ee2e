// Dense gradients of weights: which kernels take them, and that nothing is copied. Launches
// nothing.

#include "kernels/cuda/matmul/gradient/gradient_family.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/cuda/matmul/plain_family.h"
#include "kernels/cuda/run/cuda_program.h"
#include "kernels/cuda/sm90/gradient.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr double kMemoryRate = 4.8e12;

// Both operands along their rows: [k, m] and [k, n] in memory.
MatmulOp GradientOp(int64_t m, int64_t n, int64_t k, DType dtype = DType::kBF16) {
  MatmulOp op;
  op.a.values = {0, 0, dtype, MakeDims({m, k}), MakeDims({1, m})};
  op.b.values = {1, 0, dtype, MakeDims({n, k}), MakeDims({1, n})};
  op.d = Dense(2, DType::kBF16, MakeDims({m, n}));
  return op;
}

class GradientFamilyTest : public testing::Test {
 protected:
  static GemmPoolOptions Options() {
    GemmPoolOptions options;
    options.memory_bytes_per_s = kMemoryRate;
    options.prepare_tma = PrepareTma;
    options.families = {
        std::make_shared<GradientFamily>(DeviceTraits(), kMemoryRate),
        std::make_shared<PlainFamily>(std::vector<PlainKernel>{AnyGemmKernel(LaunchAnyGemm)})};
    return options;
  }
  GradientFamilyTest() : kernels_(Options()) {}

  // What a program takes, which copies nothing; Explain must say the same.
  std::string ChosenWithoutCopies(const MatmulOp& op) {
    const Op ops[] = {op};
    const auto program = CudaProgram::Compile(ops, kernels_);
    EXPECT_TRUE(program.ok()) << program.status();
    EXPECT_FALSE(OperandCopiesOf(ProblemOf(op)));
    const std::string kernel((*program)->steps()[0].choice.kernel);
    EXPECT_EQ(kernels_.matmul.Explain(ProblemOf(op))[0].kernel, kernel);
    return kernel;
  }

  KernelSet kernels_;
};

TEST_F(GradientFamilyTest, SixteenBitsAlongTheirRowsAreReadAsTheyLie) {
  for (const auto& [dtype, family] :
       {std::pair(DType::kBF16, "sm90_bf16_"), {DType::kF16, "sm90_f16_"}}) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{16, 2048, 2048},
                                  {2048, 16, 2048},
                                  {64, 4096, 4096},
                                  {768, 768, 16384},
                                  {2048, 2048, 2048},
                                  {4096, 4096, 4096}}) {
      MatmulOp op = GradientOp(m, n, k, dtype);
      EXPECT_THAT(ChosenWithoutCopies(op), StartsWith(family));
      op.d.dtype = DType::kF32;
      op.c = op.d;
      op.alpha = 0.5f;
      op.beta = 1;
      op.activation = Activation::kSilu;
      op.bias = Dense(3, DType::kF32, MakeDims({n}));
      EXPECT_THAT(ChosenWithoutCopies(op), StartsWith(family));
    }
  }
}

// Few tiles with long k go to all SMs.
TEST_F(GradientFamilyTest, FewTilesOfLongKAreDivided) {
  const std::string chosen = ChosenWithoutCopies(GradientOp(768, 768, 16384));
  EXPECT_THAT(chosen, testing::AnyOf(HasSubstr("stream"), HasSubstr("_k")));
}

TEST_F(GradientFamilyTest, RowsThatTheCopyEngineCannotReadAreCopied) {
  MatmulOp op = GradientOp(2048, 2048, 2048);
  op.a.values.strides = MakeDims({1, 2052});
  EXPECT_TRUE(OperandCopiesOf(ProblemOf(op)).a);
  EXPECT_FALSE(OperandCopiesOf(ProblemOf(op)).b);
  op = GradientOp(2048, 2048, 2048);
  op.b.values.strides = MakeDims({1, 2052});
  EXPECT_FALSE(OperandCopiesOf(ProblemOf(op)).a) << "b's copy lies as b does";
  EXPECT_TRUE(OperandCopiesOf(ProblemOf(op)).b);
}

TEST_F(GradientFamilyTest, TheFamilyIsOfFp8) {
  for (const Candidate& candidate : kernels_.matmul.Explain(ProblemOf(GradientOp(64, 64, 64)))) {
    if (candidate.kernel != kGradientName) continue;
    EXPECT_EQ(candidate.why_not, "a is bf16; these kernels multiply e4m3, e5m2");
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
