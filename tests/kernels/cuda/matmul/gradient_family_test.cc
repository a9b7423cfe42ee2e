// Dense matmuls for the gradient kernels: which they take, and where they are chosen. Launches
// nothing.

#include "kernels/cuda/matmul/gradient_family.h"

#include <string>
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

MatmulOp GradientBatch(int64_t batch) {
  MatmulOp op;
  op.a.values = {0, 0, DType::kBF16, MakeDims({batch, 256, 64}), MakeDims({256 * 64, 1, 256})};
  op.b.values = {1, 0, DType::kBF16, MakeDims({batch, 128, 64}), MakeDims({128 * 64, 1, 128})};
  op.d = Dense(2, DType::kBF16, MakeDims({batch, 256, 128}));
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

  // What a program takes; Explain must say the same.
  std::string Chosen(const MatmulOp& op) {
    const Op ops[] = {op};
    const auto program = CudaProgram::Compile(ops, kernels_);
    EXPECT_TRUE(program.ok()) << program.status();
    const std::string kernel((*program)->steps()[0].choice.kernel);
    EXPECT_EQ(kernels_.matmul.Explain(ProblemOf(op))[0].kernel, kernel);
    return kernel;
  }
  std::string Lacks(const char* kernel, const MatmulOp& op) {
    for (const Candidate& candidate : kernels_.matmul.Explain(ProblemOf(op))) {
      if (candidate.kernel == kernel) return candidate.feasible ? "" : candidate.why_not;
    }
    return "no such kernel";
  }

  KernelSet kernels_;
};

TEST_F(GradientFamilyTest, GradientsOfWeightsAreMultipliedAsTheyLie) {
  for (const auto& [dtype, name] :
       {std::pair(DType::kBF16, kBf16GradientName), {DType::kF16, kF16GradientName}}) {
    for (const int64_t extent : {2048, 4096}) {
      const MatmulOp op = GradientOp(extent, extent, extent, dtype);
      EXPECT_EQ(Chosen(op), name);
      const Op ops[] = {op};
      const auto program = *CudaProgram::Compile(ops, kernels_);
      EXPECT_EQ(static_cast<const CudaProgram&>(*program).scratch_bytes(), 0);  // no copy
      EXPECT_LT(program->steps()[0].choice.estimated_seconds, extent == 2048 ? 30e-6 : 200e-6);
    }
  }
}

// Few rows or columns fill few tiles, of which none divides k.
TEST_F(GradientFamilyTest, FewTilesOfLongKAreTheTmaFamilies) {
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{16, 2048, 2048},
                                {2048, 16, 2048},
                                {64, 4096, 4096},
                                {512, 512, 16384},
                                {768, 768, 16384}}) {
    const std::string chosen = Chosen(GradientOp(m, n, k));
    EXPECT_THAT(chosen, StartsWith("sm90_bf16_"));
    EXPECT_NE(chosen, kBf16GradientName) << m << " x " << n << " x " << k;
    EXPECT_EQ(Lacks(kBf16GradientName, GradientOp(m, n, k)), "");
  }
}

TEST_F(GradientFamilyTest, OperandsAlongKAreTheTmaFamilies) {
  for (const bool a_along_rows : {false, true}) {
    MatmulOp op = GradientOp(2048, 2048, 2048);
    TensorRef& values = a_along_rows ? op.b.values : op.a.values;
    values.strides = MakeDims({2048, 1});
    EXPECT_NE(Chosen(op), kBf16GradientName);
    EXPECT_THAT(Lacks(kBf16GradientName, op), HasSubstr("do not both lie along their rows"));
  }
  MatmulOp op = GradientOp(2048, 2048, 2048);
  op.a.values.strides = op.b.values.strides = MakeDims({2048, 1});
  EXPECT_NE(Chosen(op), kBf16GradientName);
  EXPECT_THAT(Lacks(kBf16GradientName, op), HasSubstr("do not both lie along their rows"));
}

TEST_F(GradientFamilyTest, WhatIsAppliedToResultsIsTheTmaFamilies) {
  MatmulOp op = GradientOp(2048, 2048, 2048);
  op.bias = Dense(3, DType::kF32, MakeDims({2048}));
  EXPECT_NE(Chosen(op), kBf16GradientName);
  EXPECT_THAT(Lacks(kBf16GradientName, op), HasSubstr("it has a bias"));
  op.bias.reset();
  op.activation = Activation::kSilu;
  EXPECT_NE(Chosen(op), kBf16GradientName);
  EXPECT_THAT(Lacks(kBf16GradientName, op), HasSubstr("it has an activation"));
}

TEST_F(GradientFamilyTest, AddsToCAndScales) {
  for (DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
    MatmulOp op = GradientOp(2048, 2048, 2048);
    op.alpha = 0.5f;
    op.d.dtype = out;
    op.c = op.d;
    op.beta = 1;
    EXPECT_EQ(Chosen(op), kBf16GradientName) << Name(out);
  }
}

TEST_F(GradientFamilyTest, EachMemberMultipliesItsType) {
  const MatmulOp bf16 = GradientOp(2048, 2048, 2048);
  EXPECT_EQ(Lacks(kF16GradientName, bf16), "a is bf16; this kernel multiplies f16");
  EXPECT_EQ(Lacks(kGradientName, bf16), "a is bf16; this kernel multiplies e4m3, e5m2");
  const MatmulOp f32 = GradientOp(64, 64, 64, DType::kF32);
  EXPECT_EQ(Lacks(kGradientName, f32), "a is f32; this kernel multiplies e4m3, e5m2");
  EXPECT_EQ(Lacks(kBf16GradientName, f32), "a is f32; this kernel multiplies bf16");
}

TEST_F(GradientFamilyTest, NamesRowsThatTheCopyEngineCannotRead) {
  MatmulOp op = GradientOp(2048, 2048, 2048);
  op.b.values.strides = MakeDims({1, 2052});
  EXPECT_THAT(Lacks(kBf16GradientName, op), HasSubstr("b starts at no multiple of 16"));
  op = GradientOp(2048, 2048, 2048);
  op.a.values.strides = MakeDims({2, 4096});
  EXPECT_THAT(Lacks(kBf16GradientName, op), HasSubstr("nor along its rows"));
}

// Of a single row the stride between rows says nothing.
TEST_F(GradientFamilyTest, ASingleRowLiesAlongItself) {
  MatmulOp op = GradientOp(1, 2048, 64);
  op.a.values.strides = MakeDims({7, 8});
  EXPECT_EQ(Lacks(kBf16GradientName, op), "");
}

TEST_F(GradientFamilyTest, TakesBatchesWhoseMatricesLieApart) {
  EXPECT_EQ(Lacks(kBf16GradientName, GradientBatch(3)), "");
  MatmulOp op = GradientBatch(3);
  op.b.values.shape = MakeDims({128, 64});
  op.b.values.strides = MakeDims({1, 128});
  EXPECT_THAT(Lacks(kBf16GradientName, op), HasSubstr("matrices of b are 0 bytes apart"));
}

TEST_F(GradientFamilyTest, TimeGoesInWholeRounds) {
  const GradientFamily family(DeviceTraits(), kMemoryRate);
  const auto seconds = [&](int64_t m, int64_t n) {
    return family.Seconds(1, ProblemOf(GradientOp(m, n, 4096)));
  };
  EXPECT_NEAR(seconds(1800, 2048), seconds(2048, 2048), 1e-6);
  EXPECT_GT(seconds(2304, 2048), 1.4 * seconds(2048, 2048));
  EXPECT_LT(seconds(1024, 1024), 0.7 * seconds(2048, 2048));  // by tiles of 128 rows
}

}  // namespace
}  // namespace gemmd::kernels::cuda
