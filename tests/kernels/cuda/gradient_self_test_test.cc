#include "kernels/cuda/grouped/gradient_self_test.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/grouped/k_grouped_op.h"
#include "kernels/k_grouped.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(GradientSelfTestTest, PoisonAndOtherSizesAreJudgedWrong) {
  for (DType out : {DType::kF32, DType::kBF16}) {
    const GradientTrial trial(DType::kE4M3, DType::kE5M2, out);
    std::vector<std::byte> result = trial.slots()[trial.result_slot()];  // NaNs still
    EXPECT_THAT(trial.Judge(result), HasSubstr("is nan, not"));
    result.back() = std::byte{0};
    EXPECT_THAT(trial.Judge(result), HasSubstr("beyond the result"));
    result.pop_back();
    EXPECT_THAT(trial.Judge(result), HasSubstr("another size"));
  }
}

TEST(GradientSelfTestTest, KernelsServeWhatItTries) {
  for (const GradientTrial& trial : GradientTrials()) {
    EXPECT_THAT(WhyNotGradient(trial.op()), IsEmpty());
  }
}

KGroupedMatmulOp Op128() {
  return *OpOf(KGroupedProblem{.groups = 2,
                               .m = 256,
                               .n = 128,
                               .k = 512,
                               .a = DType::kE4M3,
                               .b = DType::kE5M2,
                               .a_granularity = ScaleGranularity::kBlock1x128,
                               .b_granularity = ScaleGranularity::kBlock1x128});
}

TEST(GradientLegalityTest, NamesWhatIsMissing) {
  KGroupedMatmulOp op = Op128();
  EXPECT_THAT(WhyNotGradient(op), IsEmpty());
  op.a.values.strides[0] = 520;
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("rows of a are 520 bytes apart"));
  op = Op128();
  op.b.granularity = ScaleGranularity::kPerRow;
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("scales of b are row"));
  op = Op128();
  op.a.values.dtype = DType::kF32;
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("a is f32; these kernels multiply e4m3, e5m2"));
  op.a.values.dtype = DType::kBF16;
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("b is e5m2; these kernels multiply bf16"));
  op = Op128();
  op.d.offset_bytes = 4;
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("d starts at no multiple of 16"));
  op = Op128();
  op.d.strides = MakeDims({256 * 129, 129, 1});
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("rows of d are 516 bytes apart"));
}

// Activations and gradients of a layer lie along their rows, [tokens, rows].
TEST(GradientLegalityTest, SixteenBitsLieEitherWay) {
  for (DType type : {DType::kBF16, DType::kF16}) {
    KGroupedMatmulOp op =
        *OpOf(KGroupedProblem{.groups = 2, .m = 256, .n = 136, .k = 500, .a = type, .b = type});
    EXPECT_THAT(WhyNotGradient(op), HasSubstr("rows of a are 1000 bytes apart"));
    op.a.values.strides = op.b.values.strides = MakeDims({504, 1});
    EXPECT_THAT(WhyNotGradient(op), IsEmpty());
    EXPECT_EQ(LayoutOf(op, true).scratch_bytes, 256);  // starts and sizes alone
    op.a.values.strides = MakeDims({1, 256});
    EXPECT_THAT(WhyNotGradient(op), HasSubstr("one of a and b lies along k"));
    op.b.values.strides = MakeDims({1, 136});
    EXPECT_THAT(WhyNotGradient(op), IsEmpty());
    op.b.values.strides = MakeDims({1, 140});
    EXPECT_THAT(WhyNotGradient(op), HasSubstr("columns of b are 280 bytes apart"));
    op.b.values.strides = MakeDims({2, 272});
    EXPECT_THAT(WhyNotGradient(op), HasSubstr("b is not contiguous along k, nor along its rows"));
  }
}

// Dense ones are the pool's.
TEST(GradientLegalityTest, SixteenBitsAreServedOverGroupsAlone) {
  GradientProblem problem;
  problem.args.type = problem.args.b_type = ElementType::kBF16;
  EXPECT_THAT(WhyNotGradient(problem), HasSubstr("a is bf16; these kernels multiply e4m3, e5m2"));
}

TEST(GradientLegalityTest, CopiesScalesThatDoNotLieByColumns) {
  KGroupedMatmulOp op = Op128();
  const KGroupedLayout plain = LayoutOf(op, true);
  op.a.scales->strides = MakeDims({4, 1});
  EXPECT_EQ(LayoutOf(op, true).scratch_bytes, plain.scratch_bytes + 4 * 256 * 4);
}

TEST(GradientLegalityTest, RanksTheFastKernelFirst) {
  const KernelInfo gradient{kGradientName, kGradientName, ""};
  const KernelInfo any{kAnyKGroupedName, kAnyKGroupedName, ""};
  KGroupedMatmulOp op = Op128();
  auto ranked = RankKGrouped(op, gradient, any, 4e12);
  EXPECT_EQ(ranked[0].kernel, kGradientName);
  EXPECT_TRUE(ranked[0].chosen);
  EXPECT_THAT(ranked[1].why_not, HasSubstr("slower by the model"));
  op.a.values.dtype = op.b.values.dtype = DType::kF32;
  ranked = RankKGrouped(op, gradient, any, 4e12);
  EXPECT_EQ(ranked[0].kernel, kAnyKGroupedName);
  EXPECT_THAT(ranked[1].why_not, HasSubstr("a is f32"));
}

}  // namespace
}  // namespace gemmd::kernels::cuda
