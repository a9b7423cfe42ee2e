#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/op.h"

namespace gemmd::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A valid op with everything, one slot per tensor; tests break one thing of it.
class OpValidateNormalizeTest : public testing::Test {
 protected:
  OpValidateNormalizeTest() {
    op_.src = Dense(0, DType::kBF16, MakeDims({4, 256}));
    op_.dst = Dense(1, DType::kE4M3, MakeDims({4, 256}));
    op_.scales = Dense(2, DType::kF32, MakeDims({4, 2}));
    op_.weight = Dense(3, DType::kF32, MakeDims({256}));
    op_.bias = Dense(4, DType::kF32, MakeDims({256}));
    op_.addend = Dense(5, DType::kBF16, MakeDims({4, 256}));
    op_.sum = Dense(6, DType::kBF16, MakeDims({4, 256}));
    op_.centered = true;
  }

  absl::Status Validate(const NormalizeOp& op) { return ValidateOps({Op(op)}, slots_, {}); }

  template <class Change>
  void ExpectRefused(Change change, const testing::Matcher<std::string>& message) {
    NormalizeOp op = op_;
    change(op);
    const absl::Status status = Validate(op);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("op 0 (normalize): "), message));
  }

  std::vector<SlotInfo> slots_ = std::vector<SlotInfo>(7, {4096, false});
  NormalizeOp op_;
};

TEST_F(OpValidateNormalizeTest, AcceptsResultsWithAndWithoutScales) {
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.scales.reset();
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    op_.dst.dtype = dtype;
    EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  }
}

TEST_F(OpValidateNormalizeTest, AcceptsEveryTypeOfSource) {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    op_.src.dtype = op_.addend->dtype = op_.sum->dtype = dtype;
    EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  }
}

TEST_F(OpValidateNormalizeTest, AcceptsAnAddendAloneAndNone) {
  op_.sum.reset();
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.addend.reset();
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateNormalizeTest, AcceptsASumThatIsWhatItIsOf) {
  op_.sum = op_.src;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.sum = op_.addend;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.src = *op_.addend;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.src.strides = op_.addend->strides = op_.sum->strides = MakeDims({1, 4});
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

// Neither is written: they may be anywhere, and repeat themselves.
TEST_F(OpValidateNormalizeTest, AcceptsAnAddendAcrossItsSource) {
  op_.addend->slot = 0;
  op_.addend->offset_bytes = 512;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.addend->strides[0] = 0;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

// Side by side in one slot is apart.
TEST_F(OpValidateNormalizeTest, AcceptsASumBesideWhatItIsOf) {
  op_.src = Dense(0, DType::kBF16, MakeDims({2, 256}));
  op_.dst.shape[0] = op_.scales->shape[0] = 2;
  op_.addend = op_.sum = op_.src;
  op_.addend->offset_bytes = 1024;
  op_.sum->offset_bytes = 2048;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateNormalizeTest, AcceptsWeightAndBiasEachAlone) {
  op_.weight.reset();
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.bias.reset();
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.weight = Dense(3, DType::kF32, MakeDims({256}));
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

// Both are read: they may be one tensor, and that may repeat itself.
TEST_F(OpValidateNormalizeTest, AcceptsVectorsThatShareMemory) {
  op_.bias = op_.weight;
  op_.bias->strides[0] = 0;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateNormalizeTest, AcceptsABatch) {
  op_.src = Dense(0, DType::kBF16, MakeDims({2, 3, 200}));
  op_.dst = Dense(1, DType::kE4M3, MakeDims({2, 3, 200}));
  op_.scales = Dense(2, DType::kF32, MakeDims({2, 3, 2}));
  op_.addend = Dense(5, DType::kBF16, MakeDims({2, 3, 200}));
  op_.sum = Dense(6, DType::kBF16, MakeDims({2, 3, 200}));
  op_.weight->shape[0] = op_.bias->shape[0] = 200;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateNormalizeTest, RefusesShapesThatDoNotFit) {
  ExpectRefused([](NormalizeOp& op) { op.dst.shape[1] = 255; },
                AllOf(HasSubstr("dst has shape [4, 255]"), HasSubstr("src asks for [4, 256]")));
  ExpectRefused(
      [](NormalizeOp& op) {
        op.src = Dense(0, DType::kBF16, MakeDims({256}));
        op.dst = Dense(1, DType::kE4M3, MakeDims({256}));
      },
      HasSubstr("src has shape [256]; give it 2 dimensions"));
  ExpectRefused(
      [](NormalizeOp& op) { op.weight->shape[0] = 255; },
      AllOf(HasSubstr("weight has shape [255]"), HasSubstr("the columns of src asks for [256]")));
  ExpectRefused([](NormalizeOp& op) { op.bias->shape[0] = 4; }, HasSubstr("bias has shape [4]"));
  ExpectRefused(
      [](NormalizeOp& op) {
        op.bias = Dense(4, DType::kF32, MakeDims({1, 256}));
      },
      HasSubstr("bias has shape [1, 256]"));
}

TEST_F(OpValidateNormalizeTest, RefusesTypesThatItDoesNotTake) {
  ExpectRefused([](NormalizeOp& op) { op.src.dtype = DType::kE4M3; }, HasSubstr("src is e4m3"));
  ExpectRefused([](NormalizeOp& op) { op.dst.dtype = DType::kI8; }, HasSubstr("dst is i8"));
  ExpectRefused([](NormalizeOp& op) { op.dst.dtype = DType::kE5M2; }, HasSubstr("dst is e5m2"));
  ExpectRefused([](NormalizeOp& op) { op.weight->dtype = DType::kBF16; },
                HasSubstr("weight is bf16"));
  ExpectRefused([](NormalizeOp& op) { op.bias->dtype = DType::kF16; }, HasSubstr("bias is f16"));
}

TEST_F(OpValidateNormalizeTest, RefusesASumOfNothing) {
  ExpectRefused([](NormalizeOp& op) { op.addend.reset(); },
                HasSubstr("a sum is given but no addend; give both, or copy src"));
}

TEST_F(OpValidateNormalizeTest, RefusesSumsThatDoNotFit) {
  ExpectRefused([](NormalizeOp& op) { op.addend->shape[1] = 255; },
                AllOf(HasSubstr("addend has shape [4, 255]"), HasSubstr("src asks for [4, 256]")));
  ExpectRefused([](NormalizeOp& op) { op.addend = Dense(5, DType::kBF16, MakeDims({256})); },
                HasSubstr("addend has shape [256]"));
  ExpectRefused([](NormalizeOp& op) { op.sum->shape[0] = 3; },
                AllOf(HasSubstr("sum has shape [3, 256]"), HasSubstr("src asks for [4, 256]")));
  ExpectRefused(
      [](NormalizeOp& op) {
        op.sum = Dense(6, DType::kBF16, MakeDims({1, 4, 256}));
      },
      HasSubstr("sum has shape [1, 4, 256]"));
  ExpectRefused([](NormalizeOp& op) { op.addend->dtype = DType::kF16; },
                AllOf(HasSubstr("addend is f16"), HasSubstr("convert it to bf16")));
  ExpectRefused([](NormalizeOp& op) { op.sum->dtype = DType::kF32; },
                AllOf(HasSubstr("sum is f32"), HasSubstr("convert it to bf16")));
  ExpectRefused(
      [](NormalizeOp& op) {
        op.sum->dtype = DType::kE4M3;
        op.addend->dtype = DType::kE4M3;
      },
      HasSubstr("addend is e4m3"));
}

TEST_F(OpValidateNormalizeTest, RefusesScalesThatDoNotFit) {
  ExpectRefused([](NormalizeOp& op) { op.scales.reset(); }, HasSubstr("add f32 ones of [4, 2]"));
  ExpectRefused([](NormalizeOp& op) { op.scales->shape[1] = 1; }, HasSubstr("granularity 1x128"));
  ExpectRefused([](NormalizeOp& op) { op.scales->dtype = DType::kBF16; },
                HasSubstr("scales is bf16"));
  ExpectRefused([](NormalizeOp& op) { op.dst.dtype = DType::kBF16; },
                HasSubstr("scales are given"));
}

TEST_F(OpValidateNormalizeTest, RefusesAnEpsilonOutOfRange) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float epsilon : {-1e-5f, kNaN, kInfinity, -kInfinity}) {
    ExpectRefused([&](NormalizeOp& op) { op.epsilon = epsilon; },
                  AllOf(HasSubstr("epsilon="), HasSubstr("is not a finite number of 0 and more")));
  }
  op_.epsilon = 0;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateNormalizeTest, RefusesOverlaps) {
  ExpectRefused([](NormalizeOp& op) { op.dst.slot = 0; },
                HasSubstr("dst (bytes 0 to 1024) overlaps src"));
  ExpectRefused([](NormalizeOp& op) { op.weight->slot = 1; },
                HasSubstr("dst (bytes 0 to 1024) overlaps weight"));
  ExpectRefused([](NormalizeOp& op) { op.bias->slot = 1; },
                HasSubstr("dst (bytes 0 to 1024) overlaps bias"));
  ExpectRefused([](NormalizeOp& op) { op.scales->slot = 0; },
                HasSubstr("scales (bytes 0 to 32) overlaps src"));
  ExpectRefused([](NormalizeOp& op) { op.scales->slot = 3; },
                HasSubstr("scales (bytes 0 to 32) overlaps weight"));
  ExpectRefused([](NormalizeOp& op) { op.scales->slot = 4; },
                HasSubstr("scales (bytes 0 to 32) overlaps bias"));
  ExpectRefused([](NormalizeOp& op) { op.scales->slot = 1; }, HasSubstr("overlaps scales"));
  ExpectRefused([](NormalizeOp& op) { op.dst.slot = 5; },
                HasSubstr("dst (bytes 0 to 1024) overlaps addend"));
  ExpectRefused([](NormalizeOp& op) { op.scales->slot = 5; },
                HasSubstr("scales (bytes 0 to 32) overlaps addend"));
}

// A sum is src or the addend itself, or apart from both.
TEST_F(OpValidateNormalizeTest, RefusesASumAcrossWhatItIsOf) {
  const auto expect_refused = [this](auto change, const std::string& of) {
    for (bool addend : {false, true}) {
      ExpectRefused(
          [&](NormalizeOp& op) {
            op.sum = addend ? *op.addend : op.src;
            change(*op.sum);
          },
          HasSubstr("sum (bytes " + of + (addend ? ") overlaps addend" : ") overlaps src")));
    }
  };
  expect_refused([](TensorRef& sum) { sum.offset_bytes = 2; }, "2 to 2050");
  expect_refused([](TensorRef& sum) { sum.offset_bytes = 2046; }, "2046 to 4094");
  expect_refused([](TensorRef& sum) { sum.strides[0] = 264; }, "0 to 2096");
  expect_refused([](TensorRef& sum) { sum.strides = MakeDims({1, 4}); }, "0 to 2048");
  // Itself the one, and across the other.
  ExpectRefused(
      [](NormalizeOp& op) {
        op.addend = op.sum = op.src;
        op.addend->offset_bytes = 512;
      },
      HasSubstr("sum (bytes 0 to 2048) overlaps addend (bytes 512 to 2560)"));
  ExpectRefused(
      [](NormalizeOp& op) {
        op.src = *op.addend;
        op.sum = op.addend;
        op.src.strides[0] = 0;
      },
      HasSubstr("sum (bytes 0 to 2048) overlaps src (bytes 0 to 512)"));
}

TEST_F(OpValidateNormalizeTest, RefusesASumOverTheRest) {
  ExpectRefused([](NormalizeOp& op) { op.sum->slot = 1; },
                HasSubstr("dst (bytes 0 to 1024) overlaps sum"));
  ExpectRefused([](NormalizeOp& op) { op.sum->slot = 2; }, HasSubstr("overlaps scales"));
  ExpectRefused([](NormalizeOp& op) { op.sum->slot = 3; },
                HasSubstr("sum (bytes 0 to 2048) overlaps weight"));
  ExpectRefused([](NormalizeOp& op) { op.sum->slot = 4; },
                HasSubstr("sum (bytes 0 to 2048) overlaps bias"));
  // In place all else has to lie apart from it, too.
  ExpectRefused(
      [](NormalizeOp& op) {
        op.sum = op.src;
        op.weight->slot = 0;
      },
      HasSubstr("sum (bytes 0 to 2048) overlaps weight"));
}

TEST_F(OpValidateNormalizeTest, RefusesViewsBeyondTheirSlots) {
  ExpectRefused([](NormalizeOp& op) { op.src.strides[0] = 1025; }, HasSubstr("reaches byte"));
  ExpectRefused([](NormalizeOp& op) { op.dst.strides[0] = 0; }, HasSubstr("map several elements"));
  ExpectRefused([](NormalizeOp& op) { op.scales->offset_bytes = 4092; }, HasSubstr("reaches byte"));
  ExpectRefused([](NormalizeOp& op) { op.weight->strides[0] = 5; }, HasSubstr("weight reaches"));
  ExpectRefused([](NormalizeOp& op) { op.bias->offset_bytes = 2; },
                HasSubstr("bias: offset_bytes=2"));
  ExpectRefused([](NormalizeOp& op) { op.addend->offset_bytes = 2050; },
                HasSubstr("addend reaches byte 4098"));
  ExpectRefused([](NormalizeOp& op) { op.sum->strides[0] = 1025; }, HasSubstr("sum reaches byte"));
  ExpectRefused([](NormalizeOp& op) { op.sum->strides[0] = 0; }, HasSubstr("map several elements"));
  // One row for all rows can be read, but no sum be kept there.
  ExpectRefused(
      [](NormalizeOp& op) {
        op.src.strides[0] = 0;
        op.sum = op.src;
      },
      HasSubstr("sum is written but its strides"));
}

TEST_F(OpValidateNormalizeTest, RefusesToWriteAPublishedBuffer) {
  slots_[1].read_only = true;
  EXPECT_EQ(Validate(op_).code(), absl::StatusCode::kFailedPrecondition);
  slots_[1].read_only = false;
  slots_[6].read_only = true;
  EXPECT_EQ(Validate(op_).code(), absl::StatusCode::kFailedPrecondition);
  slots_[6].read_only = false;
  for (int slot : {0, 3, 4, 5}) slots_[slot].read_only = true;  // what is read may be one
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.sum = op_.src;
  EXPECT_EQ(Validate(op_).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gemmd::kernels
