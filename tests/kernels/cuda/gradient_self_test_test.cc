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
  for (DType a : {DType::kE4M3, DType::kE5M2}) {
    const GradientTrial trial(a, DType::kE5M2, DType::kF32);
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
  op.a.values.dtype = DType::kBF16;
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("a is not fp8"));
  op = Op128();
  op.d.offset_bytes = 4;
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("d starts at no multiple of 16"));
  op = Op128();
  op.d.strides = MakeDims({256 * 129, 129, 1});
  EXPECT_THAT(WhyNotGradient(op), HasSubstr("rows of d are 516 bytes apart"));
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
  op.a.values.dtype = op.b.values.dtype = DType::kBF16;
  ranked = RankKGrouped(op, gradient, any, 4e12);
  EXPECT_EQ(ranked[0].kernel, kAnyKGroupedName);
  EXPECT_THAT(ranked[1].why_not, HasSubstr("a is not fp8"));
}

}  // namespace
}  // namespace gemmd::kernels::cuda
