#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/op.h"

namespace gemmd::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A valid op with everything, one slot per tensor; tests break one thing of it.
class OpValidateChooseTest : public testing::Test {
 protected:
  OpValidateChooseTest() {
    op_.logits = Dense(0, DType::kBF16, MakeDims({6, 64}));
    op_.bias = Dense(1, DType::kF32, MakeDims({64}));
    op_.experts = Dense(2, DType::kI32, MakeDims({6, 8}));
    op_.weights = Dense(3, DType::kF32, MakeDims({6, 8}));
    op_.groups = 8;
    op_.top_groups = 4;
    op_.group_score = GroupScore::kTop2Sum;
  }

  absl::Status Validate(const ChooseOp& op) { return ValidateOps({Op(op)}, slots_, {}); }

  void ExpectTaken(const std::function<void(ChooseOp&)>& change) {
    ChooseOp op = op_;
    change(op);
    EXPECT_TRUE(Validate(op).ok()) << Validate(op);
  }

  void ExpectRefused(const std::function<void(ChooseOp&)>& change,
                     const testing::Matcher<std::string>& message) {
    ChooseOp op = op_;
    change(op);
    const absl::Status status = Validate(op);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("op 0 (choose): "), message));
  }

  std::vector<SlotInfo> slots_ = std::vector<SlotInfo>(4, {1 << 16, false});
  ChooseOp op_;
};

TEST_F(OpValidateChooseTest, TakesWhatRoutersHave) {
  ExpectTaken([](ChooseOp&) {});
  ExpectTaken([](ChooseOp& op) { op.bias.reset(); });
  ExpectTaken([](ChooseOp& op) { op.logits.dtype = DType::kF32; });
  ExpectTaken([](ChooseOp& op) { op.logits.dtype = DType::kF16; });
  ExpectTaken([](ChooseOp& op) { op.groups = op.top_groups = 1; });
  ExpectTaken([](ChooseOp& op) { op.logits.strides = MakeDims({1, 6}); });
  ExpectTaken([](ChooseOp& op) { op.weights.strides = MakeDims({1, 6}); });
  ExpectTaken([](ChooseOp& op) { op.experts.strides = MakeDims({11, 1}); });
  ExpectTaken([](ChooseOp& op) { op.bias->strides[0] = 0; });
  ExpectTaken(
      [](ChooseOp& op) { op.logits.shape[0] = op.experts.shape[0] = op.weights.shape[0] = 0; });
  // One group is all experts, whatever its score would be.
  ExpectTaken([](ChooseOp& op) {
    op.logits.shape[1] = op.bias->shape[0] = 1;
    op.experts.shape[1] = op.weights.shape[1] = 1;
    op.groups = op.top_groups = 1;
  });
}

TEST_F(OpValidateChooseTest, ShapesAgree) {
  ExpectRefused([](ChooseOp& op) { op.logits = Dense(0, DType::kBF16, MakeDims({64})); },
                AllOf(HasSubstr("logits has shape [64]"), HasSubstr("[tokens, experts]")));
  ExpectRefused([](ChooseOp& op) { op.experts = Dense(2, DType::kI32, MakeDims({48})); },
                AllOf(HasSubstr("experts has shape [48]"), HasSubstr("[tokens, top_k]")));
  ExpectRefused([](ChooseOp& op) { op.experts.shape[0] = 5; },
                AllOf(HasSubstr("experts has shape [5, 8]"), HasSubstr("[6, 8]")));
  ExpectRefused([](ChooseOp& op) { op.weights.shape[1] = 7; },
                AllOf(HasSubstr("weights has shape [6, 7]"), HasSubstr("experts asks for")));
  ExpectRefused([](ChooseOp& op) { op.bias->shape[0] = 63; },
                AllOf(HasSubstr("bias has shape [63]"), HasSubstr("[64]")));
}

TEST_F(OpValidateChooseTest, ExpertsAndChoicesHaveLimits) {
  ExpectRefused(
      [](ChooseOp& op) {
        op.logits = Dense(0, DType::kBF16, MakeDims({6, 513}));
      },
      AllOf(HasSubstr("513 experts"), HasSubstr("1 to 512")));
  ExpectRefused([](ChooseOp& op) { op.logits.shape[1] = 0; }, HasSubstr("0 experts"));
  ExpectRefused(
      [](ChooseOp& op) {
        op.experts = Dense(2, DType::kI32, MakeDims({6, 33}));
      },
      AllOf(HasSubstr("top_k=33"), HasSubstr("1 to 32")));
  ExpectRefused([](ChooseOp& op) { op.experts.shape[1] = 0; }, HasSubstr("top_k=0"));
  ExpectRefused([](ChooseOp& op) { op.logits.shape[1] = 7; },
                AllOf(HasSubstr("top_k=8"), HasSubstr("1 to 7")));
}

TEST_F(OpValidateChooseTest, DTypesAreThoseOfARouter) {
  ExpectRefused([](ChooseOp& op) { op.logits.dtype = DType::kI8; }, HasSubstr("logits is i8"));
  ExpectRefused([](ChooseOp& op) { op.bias->dtype = DType::kBF16; }, HasSubstr("bias is bf16"));
  ExpectRefused([](ChooseOp& op) { op.experts.dtype = DType::kF32; }, HasSubstr("experts is f32"));
  ExpectRefused([](ChooseOp& op) { op.weights.dtype = DType::kBF16; },
                HasSubstr("weights is bf16"));
  ExpectRefused(
      [](ChooseOp& op) {
        op.experts.strides = MakeDims({1, 6});
      },
      AllOf(HasSubstr("experts has stride 6"), HasSubstr("dense")));
}

TEST_F(OpValidateChooseTest, GroupsDivideTheExpertsAndHaveEnough) {
  ExpectRefused([](ChooseOp& op) { op.groups = 5; },
                AllOf(HasSubstr("groups=5"), HasSubstr("64 experts")));
  for (int64_t groups : {0, -1}) {
    ExpectRefused([&](ChooseOp& op) { op.groups = groups; }, HasSubstr("does not divide"));
  }
  for (int64_t top_groups : {0, -1, 9}) {
    ExpectRefused([&](ChooseOp& op) { op.top_groups = top_groups; },
                  AllOf(HasSubstr("top_groups="), HasSubstr("outside 1 to groups=8")));
  }
  ExpectRefused(
      [](ChooseOp& op) {
        op.groups = 16;
        op.top_groups = 1;
      },
      AllOf(HasSubstr("top_groups=1 groups of 4"), HasSubstr("top_k=8")));
  ExpectRefused(
      [](ChooseOp& op) {
        op.groups = 64;
        op.top_groups = 64;
      },
      AllOf(HasSubstr("top2_sum"), HasSubstr("use max")));
  ExpectTaken([](ChooseOp& op) {
    op.groups = 64;
    op.top_groups = 8;
    op.group_score = GroupScore::kMax;
  });
}

TEST_F(OpValidateChooseTest, NumbersAreKnownOnes) {
  ExpectRefused([](ChooseOp& op) { op.scores = static_cast<RouterScores>(2); },
                AllOf(HasSubstr("scores number 2"), HasSubstr("softmax, sigmoid")));
  ExpectRefused([](ChooseOp& op) { op.group_score = static_cast<GroupScore>(7); },
                AllOf(HasSubstr("group_score number 7"), HasSubstr("max, top2_sum")));
  constexpr float kLargest = std::numeric_limits<float>::infinity();
  for (float scale : {0.0f, -1.0f, kLargest, std::numeric_limits<float>::quiet_NaN()}) {
    ExpectRefused([&](ChooseOp& op) { op.scale = scale; },
                  AllOf(HasSubstr("scale="), HasSubstr("above 0")));
  }
}

TEST_F(OpValidateChooseTest, ResultsLieApart) {
  ExpectRefused([](ChooseOp& op) { op.experts.slot = 0; }, HasSubstr("overlaps logits"));
  ExpectRefused([](ChooseOp& op) { op.weights.slot = 0; }, HasSubstr("overlaps logits"));
  ExpectRefused([](ChooseOp& op) { op.experts.slot = 1; }, HasSubstr("overlaps bias"));
  ExpectRefused([](ChooseOp& op) { op.weights.slot = 2; }, HasSubstr("overlaps weights"));
  ExpectRefused([](ChooseOp& op) { op.weights.strides[0] = 0; }, HasSubstr("map several elements"));
  slots_[3].read_only = true;
  EXPECT_EQ(Validate(op_).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gemmd::kernels
