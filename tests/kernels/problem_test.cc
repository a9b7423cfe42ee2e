#include "kernels/problem.h"

#include "absl/hash/hash_testing.h"
#include "gtest/gtest.h"

namespace gemmd::kernels {
namespace {

MatmulOp Matmul(int64_t m, int64_t n, int64_t k) {
  const auto dense = [](int slot, DType dtype, int64_t rows, int64_t cols) {
    const Dims shape = MakeDims({rows, cols});
    return TensorRef{slot, 0, dtype, shape, RowMajorStrides(shape)};
  };
  MatmulOp op;
  op.a.values = dense(0, DType::kF32, m, k);
  op.b.values = dense(1, DType::kF32, n, k);
  op.d = dense(2, DType::kF32, m, n);
  return op;
}

TEST(ProblemTest, TakesExtentsFromOperands) {
  const MatmulProblem problem = ProblemOf(Matmul(3, 5, 7));
  EXPECT_EQ(problem.batch, 1);
  EXPECT_EQ(problem.m, 3);
  EXPECT_EQ(problem.n, 5);
  EXPECT_EQ(problem.k, 7);
  EXPECT_EQ(problem.flops(), 210);
  EXPECT_EQ(problem.bytes(), 4 * (21 + 35 + 15));
}

TEST(ProblemTest, TellsLayouts) {
  MatmulOp op = Matmul(3, 5, 7);
  op.a.values.strides = MakeDims({1, 4});
  op.b.values.strides = MakeDims({20, 2});
  const MatmulProblem problem = ProblemOf(op);
  EXPECT_EQ(problem.a.layout, Layout::kRowsContiguous);
  EXPECT_EQ(problem.a.leading_stride, 4);
  EXPECT_EQ(problem.b.layout, Layout::kStrided);
  EXPECT_EQ(problem.d.layout, Layout::kKContiguous);
  EXPECT_EQ(problem.d.leading_stride, 5);
}

TEST(ProblemTest, StridesOfSingleRowsSayNothing) {
  MatmulOp op = Matmul(1, 5, 7);
  op.a.values.strides = MakeDims({1000001, 1});
  EXPECT_EQ(ProblemOf(op).a, ProblemOf(Matmul(1, 5, 7)).a);
  op = Matmul(3, 5, 1);
  op.a.values.strides = MakeDims({9, 1000001});
  EXPECT_EQ(ProblemOf(op).a.layout, Layout::kKContiguous);
  EXPECT_EQ(ProblemOf(op).a.leading_stride, 9);
}

TEST(ProblemTest, AlignmentIsOfEveryRowsStart) {
  MatmulOp op = Matmul(8, 5, 64);
  EXPECT_EQ(ProblemOf(op).a.alignment_bytes, 256);
  EXPECT_EQ(ProblemOf(op).d.alignment_bytes, 4);  // rows of 20 bytes
  op.a.values.offset_bytes = 48;
  EXPECT_EQ(ProblemOf(op).a.alignment_bytes, 16);
  op.a.values.shape = MakeDims({2, 8, 64});
  op.a.values.strides = MakeDims({514, 64, 1});
  EXPECT_EQ(ProblemOf(op).a.alignment_bytes, 8);
}

TEST(ProblemTest, CCountsOnlyWithBeta) {
  MatmulOp op = Matmul(3, 5, 7);
  op.c = op.d;
  EXPECT_FALSE(ProblemOf(op).has_c);
  op.beta = 1;
  EXPECT_TRUE(ProblemOf(op).has_c);
}

// All that a kernel may judge by, and of what there is one way to say it.
TEST(ProblemTest, TellsHowCBiasAndScalesLie) {
  MatmulOp op = Matmul(3, 5, 256);
  op.beta = 1;
  op.c = TensorRef{3, 0, DType::kF32, MakeDims({3, 5}), MakeDims({1, 3})};
  op.bias = TensorRef{4, 0, DType::kF32, MakeDims({5}), MakeDims({2})};
  op.a.granularity = ScaleGranularity::kBlock1x128;
  op.a.scales = TensorRef{5, 48, DType::kF32, MakeDims({3, 2}), MakeDims({1, 4})};
  op.alpha = 0;
  const MatmulProblem problem = ProblemOf(op);
  EXPECT_EQ(problem.c.layout, Layout::kRowsContiguous);
  EXPECT_EQ(problem.bias_stride, 2);
  EXPECT_EQ(problem.a.scales, (ScaleTraits{.row_stride = 1, .k_stride = 4, .alignment_bytes = 16}));
  EXPECT_EQ(problem.b.scales, std::nullopt);
  EXPECT_FALSE(problem.reads_operands);
  op.alpha = 2;
  EXPECT_TRUE(ProblemOf(op).reads_operands);
  op.c->strides = MakeDims({5, 1});
  EXPECT_EQ(ProblemOf(op).c, ProblemOf(op).d);
}

TEST(ProblemTest, TellsWhichMatricesOfABatchAreOne) {
  MatmulOp op = Matmul(3, 5, 7);
  op.a.values.shape = MakeDims({4, 3, 7});
  op.a.values.strides = MakeDims({0, 7, 1});
  op.d.shape = MakeDims({4, 3, 5});
  op.d.strides = MakeDims({15, 5, 1});
  const MatmulProblem problem = ProblemOf(op);
  EXPECT_EQ(problem.a.batch_stride, 0);
  EXPECT_EQ(problem.b.batch_stride, 0);  // without a batch of its own
  EXPECT_EQ(problem.d.batch_stride, kPacked);
  op.d.strides[0] = 16;
  EXPECT_EQ(ProblemOf(op).d.batch_stride, 16);
  op.a.values.shape[0] = op.d.shape[0] = 1;  // a stride that is never taken
  EXPECT_EQ(ProblemOf(op).a, ProblemOf(Matmul(3, 5, 7)).a);
}

TEST(ProblemTest, AGatesProductIsThatOfTheOp) {
  for (int64_t m : {1, 6}) {
    for (DType out : {DType::kF32, DType::kBF16, DType::kE4M3}) {
      MatmulOp op = Matmul(m, 10, 7);
      op.d = {2, 0, out, MakeDims({m, 5}), MakeDims({8, 1})};
      if (out == DType::kE4M3) {
        op.d_scales = TensorRef{3, 0, DType::kF32, MakeDims({m, 1}), MakeDims({1, 1})};
      }
      op.gate = Gate{};
      const MatmulProblem problem = ProblemOf(op);
      EXPECT_EQ(problem.gate_period, 5);
      EXPECT_EQ(problem.d_cols(), 5);
      const DType dtype = out == DType::kF32 ? DType::kF32 : DType::kBF16;
      EXPECT_EQ(ProductOf(problem), ProblemOf(ProductOf(op, dtype, 4)));
      op.gate->period = 1;
      EXPECT_EQ(ProblemOf(op).gate_period, 1);
    }
  }
}

TEST(ProblemTest, PrintsWhatMatters) {
  MatmulOp op = Matmul(64, 4096, 7168);
  op.a.values.dtype = op.b.values.dtype = DType::kE4M3;
  op.a.granularity = ScaleGranularity::kBlock1x128;
  op.b.granularity = ScaleGranularity::kBlock128x128;
  op.d.dtype = DType::kBF16;
  EXPECT_EQ(ToString(ProblemOf(op)), "m=64 n=4096 k=7168 a=e4m3/1x128 b=e4m3/128x128 d=bf16");
  op.alpha = 0;
  EXPECT_EQ(ToString(ProblemOf(op)),
            "m=64 n=4096 k=7168 a=e4m3/1x128 b=e4m3/128x128 d=bf16 alpha=0");
}

TEST(ProblemTest, EqualProblemsHashAlike) {
  MatmulProblem other = ProblemOf(Matmul(3, 5, 7));
  other.has_bias = true;
  MatmulProblem scaled = other;
  scaled.a.scales = ScaleTraits{.row_stride = 1};
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {ProblemOf(Matmul(3, 5, 7)), ProblemOf(Matmul(3, 5, 8)), ProblemOf(Matmul(5, 3, 7)), other,
       scaled, MatmulProblem{}}));
}

}  // namespace
}  // namespace gemmd::kernels
