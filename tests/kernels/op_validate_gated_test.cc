#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/op.h"

namespace gemmd::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A valid op with everything, one slot per tensor; tests break one thing of it.
class OpValidateGatedTest : public testing::Test {
 protected:
  OpValidateGatedTest() {
    op_.src = Dense(0, DType::kBF16, MakeDims({4, 512}));
    op_.dst = Dense(1, DType::kE4M3, MakeDims({4, 256}));
    op_.scales = Dense(2, DType::kF32, MakeDims({4, 2}));
    op_.alpha = 1.702f;
    op_.limit = 7;
    op_.up_offset = 1;
  }

  absl::Status Validate(const GatedOp& op) { return ValidateOps({Op(op)}, slots_, {}); }

  template <class Change>
  void ExpectRefused(Change change, const testing::Matcher<std::string>& message) {
    GatedOp op = op_;
    change(op);
    const absl::Status status = Validate(op);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("op 0 (gated): "), message));
  }

  std::vector<SlotInfo> slots_ = std::vector<SlotInfo>(3, {4096, false});
  GatedOp op_;
};

TEST_F(OpValidateGatedTest, AcceptsEveryPeriodThatDivides) {
  for (int64_t period : {0, 1, 2, 128, 256}) {
    op_.period = period;
    EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  }
}

TEST_F(OpValidateGatedTest, AcceptsResultsWithoutScales) {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    op_.dst.dtype = dtype;
    op_.scales.reset();
    EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  }
}

TEST_F(OpValidateGatedTest, RefusesColumnsThatDoNotPair) {
  ExpectRefused([](GatedOp& op) { op.src.shape[1] = 511; },
                HasSubstr("511 columns, an odd number"));
  ExpectRefused([](GatedOp& op) { op.dst.shape[1] = 255; }, HasSubstr("half of src's columns"));
  ExpectRefused([](GatedOp& op) { op.dst.shape[0] = 3; }, HasSubstr("half of src's columns"));
  ExpectRefused([](GatedOp& op) { op.src = Dense(0, DType::kBF16, MakeDims({512})); },
                HasSubstr("give it 2 dimensions"));
  for (int64_t period : {int64_t{-1}, int64_t{3}, int64_t{512}, std::numeric_limits<int64_t>::min(),
                         std::numeric_limits<int64_t>::max()}) {
    ExpectRefused([&](GatedOp& op) { op.period = period; },
                  AllOf(HasSubstr("period="), HasSubstr("does not divide n=256")));
  }
}

TEST_F(OpValidateGatedTest, RefusesTypesThatItDoesNotTake) {
  ExpectRefused([](GatedOp& op) { op.src.dtype = DType::kE4M3; }, HasSubstr("src is e4m3"));
  ExpectRefused([](GatedOp& op) { op.dst.dtype = DType::kI8; }, HasSubstr("dst is i8"));
}

TEST_F(OpValidateGatedTest, RefusesScalesThatDoNotFit) {
  ExpectRefused([](GatedOp& op) { op.scales.reset(); }, HasSubstr("add f32 ones of [4, 2]"));
  ExpectRefused([](GatedOp& op) { op.scales->shape[1] = 1; }, HasSubstr("granularity 1x128"));
  ExpectRefused([](GatedOp& op) { op.scales->dtype = DType::kBF16; }, HasSubstr("scales is bf16"));
  ExpectRefused([](GatedOp& op) { op.dst.dtype = DType::kBF16; }, HasSubstr("scales are given"));
}

TEST_F(OpValidateGatedTest, RefusesNumbersOutOfRange) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float alpha : {0.0f, -1.0f, kNaN, kInfinity}) {
    ExpectRefused([&](GatedOp& op) { op.alpha = alpha; }, HasSubstr("alpha="));
  }
  for (float limit : {-1.0f, kNaN, kInfinity}) {
    ExpectRefused([&](GatedOp& op) { op.limit = limit; }, HasSubstr("limit="));
  }
  for (float offset : {kNaN, kInfinity}) {
    ExpectRefused([&](GatedOp& op) { op.up_offset = offset; }, HasSubstr("up_offset="));
  }
  ExpectRefused([](GatedOp& op) { op.activation = Activation::kGeluErf; },
                HasSubstr("does not go with gelu_erf"));
  ExpectRefused([](GatedOp& op) { op.activation = static_cast<Activation>(kActivations); },
                HasSubstr("activation number 6 does not exist"));
}

TEST_F(OpValidateGatedTest, RefusesOverlaps) {
  ExpectRefused([](GatedOp& op) { op.dst.slot = 0; },
                HasSubstr("dst (bytes 0 to 1024) overlaps src"));
  ExpectRefused([](GatedOp& op) { op.scales->slot = 0; },
                HasSubstr("scales (bytes 0 to 32) overlaps src"));
  ExpectRefused([](GatedOp& op) { op.scales->slot = 1; }, HasSubstr("overlaps scales"));
}

TEST_F(OpValidateGatedTest, RefusesViewsBeyondTheirSlots) {
  ExpectRefused([](GatedOp& op) { op.src.strides[0] = 513; }, HasSubstr("reaches byte"));
  ExpectRefused([](GatedOp& op) { op.dst.strides[0] = 0; }, HasSubstr("map several elements"));
  ExpectRefused([](GatedOp& op) { op.scales->offset_bytes = 4092; }, HasSubstr("reaches byte"));
}

TEST_F(OpValidateGatedTest, RefusesToWriteAPublishedBuffer) {
  slots_[1].read_only = true;
  EXPECT_EQ(Validate(op_).code(), absl::StatusCode::kFailedPrecondition);
}

// A matmul with a gate, with everything; tests break one thing of it.
class OpValidateMatmulGateTest : public testing::Test {
 protected:
  OpValidateMatmulGateTest() {
    op_.a.values = Dense(0, DType::kE4M3, MakeDims({4, 256}));
    op_.a.granularity = ScaleGranularity::kBlock1x128;
    op_.a.scales = Dense(1, DType::kF32, MakeDims({4, 2}));
    op_.b.values = Dense(2, DType::kE4M3, MakeDims({512, 256}));
    op_.b.granularity = ScaleGranularity::kBlock128x128;
    op_.b.scales = Dense(3, DType::kF32, MakeDims({4, 2}));
    op_.d = Dense(4, DType::kE4M3, MakeDims({4, 256}));
    op_.d_scales = Dense(5, DType::kF32, MakeDims({4, 2}));
    op_.bias = Dense(6, DType::kF32, MakeDims({512}));
    op_.gate = Gate{};
  }

  absl::Status Validate(const MatmulOp& op) { return ValidateOps({Op(op)}, slots_, {}); }

  template <class Change>
  void ExpectRefused(Change change, const testing::Matcher<std::string>& message) {
    MatmulOp op = op_;
    change(op);
    const absl::Status status = Validate(op);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("op 0 (matmul): "), message));
  }

  std::vector<SlotInfo> slots_ = std::vector<SlotInfo>(8, {1 << 18, false});
  MatmulOp op_;
};

TEST_F(OpValidateMatmulGateTest, AcceptsHalvesBlocksAndPlainResults) {
  for (int64_t period : {0, 1, 128}) {
    op_.gate->period = period;
    EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  }
  op_.d.dtype = DType::kBF16;
  op_.d_scales.reset();
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateMatmulGateTest, AGateAloneHasNoUps) {
  op_.gate->alone = true;
  op_.gate->period = 0;
  const MatmulOp halves = op_;
  const int64_t n = op_.b.values.shape[0];
  op_.d.shape[1] = n;
  op_.d.strides[0] = n;
  op_.d_scales->shape[1] = (n + 127) / 128;
  op_.d_scales->strides = RowMajorStrides(op_.d_scales->shape);
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  ExpectRefused([](MatmulOp& op) { op.gate->period = 128; }, HasSubstr("period=128"));
  ExpectRefused([](MatmulOp& op) { op.gate->up_offset = 1; }, HasSubstr("up_offset=1"));
  ExpectRefused([&](MatmulOp& op) { op.d = halves.d; }, HasSubstr("gated a . b^T"));
}

TEST_F(OpValidateMatmulGateTest, RefusesWhatDoesNotGoWithAGate) {
  ExpectRefused([](MatmulOp& op) { op.activation = Activation::kRelu; },
                HasSubstr("activation relu is given beside a gate"));
  ExpectRefused([](MatmulOp& op) { op.beta = 1; }, HasSubstr("c is given beside a gate"));
  ExpectRefused([](MatmulOp& op) { op.gate->period = 100; }, HasSubstr("period=100"));
  ExpectRefused([](MatmulOp& op) { op.gate->alpha = 0; }, HasSubstr("alpha=0"));
  ExpectRefused([](MatmulOp& op) { op.gate->limit = -1; }, HasSubstr("limit=-1"));
  ExpectRefused([](MatmulOp& op) { op.d.shape[1] = 128; }, HasSubstr("gated a . b^T"));
  ExpectRefused([](MatmulOp& op) { op.d.dtype = DType::kI8; }, HasSubstr("d is i8"));
  ExpectRefused(
      [](MatmulOp& op) {
        op.b.values.shape[0] = 511;
        op.bias.reset();
      },
      HasSubstr("n=511"));
  ExpectRefused([](MatmulOp& op) { op.bias->dtype = DType::kBF16; }, HasSubstr("bias"));
}

TEST_F(OpValidateMatmulGateTest, ScalesGoWithE4m3Alone) {
  ExpectRefused([](MatmulOp& op) { op.d_scales.reset(); },
                HasSubstr("d is e4m3 but there are no d_scales; add f32 ones of [4, 2]"));
  ExpectRefused([](MatmulOp& op) { op.d.dtype = DType::kBF16; }, HasSubstr("d_scales are given"));
  ExpectRefused([](MatmulOp& op) { op.d_scales->shape[1] = 1; }, HasSubstr("granularity 1x128"));
  ExpectRefused([](MatmulOp& op) { op.d_scales->slot = 4; }, HasSubstr("d"));
  ExpectRefused([](MatmulOp& op) { op.d_scales->slot = 1; }, HasSubstr("a.scales"));
  ExpectRefused([](MatmulOp& op) { op.gate.reset(); }, HasSubstr("d is e4m3"));
}

}  // namespace
}  // namespace gemmd::kernels
