#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/k_grouped.h"
#include "kernels/op.h"

namespace gemmd::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A valid op with everything, one slot per tensor; tests break one thing of it.
class OpValidateKGroupedTest : public testing::Test {
 protected:
  OpValidateKGroupedTest() {
    op_.a = {Dense(0, DType::kE4M3, MakeDims({40, 500})), ScaleGranularity::kBlock1x128,
             Dense(1, DType::kF32, MakeDims({40, 4}))};
    op_.b = {Dense(2, DType::kE5M2, MakeDims({24, 500})), ScaleGranularity::kBlock1x128,
             Dense(3, DType::kF32, MakeDims({24, 4}))};
    op_.groups = Dense(4, DType::kI32, MakeDims({3}));
    op_.layout = GroupLayout::kEnds;
    op_.alignment = 128;
    op_.d = Dense(5, DType::kF32, MakeDims({3, 40, 24}));
    op_.c = Dense(6, DType::kF32, MakeDims({3, 40, 24}));
    op_.beta = 1;
  }

  absl::Status Validate(const Op& op) { return ValidateOps({op}, slots_, {}); }

  template <class Change>
  void ExpectRefused(Change change, const testing::Matcher<std::string>& message) {
    KGroupedMatmulOp op = op_;
    change(op);
    const absl::Status status = Validate(op);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("op 0 (k_grouped_matmul): "), message));
  }

  std::vector<SlotInfo> slots_ = std::vector<SlotInfo>(8, {1 << 20, false});
  KGroupedMatmulOp op_;
};

TEST_F(OpValidateKGroupedTest, AcceptsEndsAndOffsets) {
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.layout = GroupLayout::kOffsets;
  op_.alignment = 1;
  op_.groups.shape[0] = 4;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.c = op_.d;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.c.reset();
  op_.beta = 0;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateKGroupedTest, RefusesLayoutsOfRows) {
  ExpectRefused([](auto& op) { op.layout = GroupLayout::kCounts; },
                AllOf(HasSubstr("layout counts"), HasSubstr("use offsets or ends")));
  ExpectRefused([](auto& op) { op.groups.shape[0] = 4; }, HasSubstr("groups has shape [4]"));
  ExpectRefused([](auto& op) { op.alignment = 0; }, HasSubstr("alignment=0"));
  ExpectRefused(
      [](auto& op) {
        op.layout = GroupLayout::kOffsets;
        op.groups.shape[0] = 4;
      },
      HasSubstr("alignment=128 is not 1"));
}

TEST_F(OpValidateKGroupedTest, RefusesOperandsThatDoNotFit) {
  ExpectRefused([](auto& op) { op.b.values.dtype = DType::kI8; },
                AllOf(HasSubstr("a is e4m3 but b is i8"), HasSubstr("convert")));
  ExpectRefused([](auto& op) { op.b.values.shape[1] = 499; }, HasSubstr("k=500 of a"));
  ExpectRefused([](auto& op) { op.a.granularity = ScaleGranularity::kBlock128x128; },
                HasSubstr("use 1x128"));
  ExpectRefused([](auto& op) { op.a.scales.reset(); }, HasSubstr("a"));
  ExpectRefused(
      [](auto& op) {
        op.a.values.shape = MakeDims({1, 40, 500});
        op.a.values.strides = MakeDims({20000, 500, 1});
      },
      HasSubstr("give it 2 dimensions"));
}

TEST_F(OpValidateKGroupedTest, RefusesResultsThatDoNotFit) {
  ExpectRefused([](auto& op) { op.d.dtype = DType::kE5M2; }, HasSubstr("d is e5m2"));
  ExpectRefused([](auto& op) { op.d.shape[1] = 39; }, HasSubstr("d has shape [3, 39, 24]"));
  ExpectRefused([](auto& op) { op.d = op.a.values; }, HasSubstr("[groups, m, n]"));
  ExpectRefused([](auto& op) { op.d.slot = 0; }, HasSubstr("overlaps a"));
  ExpectRefused([](auto& op) { op.alpha = 0; }, HasSubstr("alpha=0"));
}

TEST_F(OpValidateKGroupedTest, RefusesABetaWithoutC) {
  ExpectRefused([](auto& op) { op.c.reset(); },
                AllOf(HasSubstr("beta=1 but there is no c"), HasSubstr("add c")));
  ExpectRefused([](auto& op) { op.beta = std::numeric_limits<float>::infinity(); },
                HasSubstr("not finite"));
  ExpectRefused([](auto& op) { op.c->dtype = DType::kBF16; }, HasSubstr("c is bf16"));
  ExpectRefused(
      [](auto& op) {
        op.c->slot = op.d.slot;
        op.c->offset_bytes = 16;
      },
      HasSubstr("overlaps c"));
}

TEST_F(OpValidateKGroupedTest, MixesFp8TypesInMatmulsAndNoOthers) {
  MatmulOp op;
  op.a.values = Dense(0, DType::kE4M3, MakeDims({4, 8}));
  op.b.values = Dense(1, DType::kE5M2, MakeDims({4, 8}));
  op.d = Dense(2, DType::kF32, MakeDims({4, 4}));
  EXPECT_TRUE(Validate(op).ok()) << Validate(op);
  std::swap(op.a.values.dtype, op.b.values.dtype);
  EXPECT_TRUE(Validate(op).ok()) << Validate(op);
  op.b.values.dtype = DType::kBF16;
  EXPECT_THAT(std::string(Validate(op).message()), HasSubstr("a is e5m2 but b is bf16"));
}

TEST(KGroupedProblemTest, BecomesAValidOp) {
  KGroupedProblem problem{.groups = 4,
                          .m = 7168,
                          .n = 4096,
                          .k = 32768,
                          .a = DType::kE4M3,
                          .b = DType::kE5M2,
                          .a_granularity = ScaleGranularity::kBlock1x128,
                          .b_granularity = ScaleGranularity::kBlock1x128,
                          .has_c = true};
  const auto op = OpOf(problem);
  ASSERT_TRUE(op.ok()) << op.status();
  EXPECT_EQ(op->alignment, 128);
  EXPECT_EQ(Flops(Op(*op)), 2.0 * 7168 * 4096 * 32768);
  EXPECT_EQ(ToString(problem),
            "groups=4 along k, ends m=7168 n=4096 k=32768 a=e4m3/1x128 b=e5m2/1x128 d=f32 +c");
  problem.groups = 513;
  EXPECT_THAT(std::string(OpOf(problem).status().message()), HasSubstr("1 to 512 groups"));
  problem.groups = 0;
  EXPECT_THAT(std::string(OpOf(problem).status().message()), HasSubstr("groups=0 is not 1"));
}

}  // namespace
}  // namespace gemmd::kernels
