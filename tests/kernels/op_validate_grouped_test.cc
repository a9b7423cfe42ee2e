#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/op.h"

namespace gemmd::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A valid op with everything, one slot per tensor; tests break one thing of it.
class OpValidateGroupedTest : public testing::Test {
 protected:
  OpValidateGroupedTest() {
    op_.a.values = Dense(0, DType::kE4M3, MakeDims({40, 256}));
    op_.a.granularity = ScaleGranularity::kBlock1x128;
    op_.a.scales = Dense(1, DType::kF32, MakeDims({40, 2}));
    op_.b.values = Dense(2, DType::kE4M3, MakeDims({4, 512, 256}));
    op_.b.granularity = ScaleGranularity::kBlock128x128;
    op_.b.scales = Dense(3, DType::kF32, MakeDims({4, 4, 2}));
    op_.groups = Dense(4, DType::kI32, MakeDims({5}));
    op_.d = Dense(5, DType::kE4M3, MakeDims({40, 256}));
    op_.d_scales = Dense(6, DType::kF32, MakeDims({40, 2}));
    op_.gate = Gate{};
    op_.bias = Dense(7, DType::kF32, MakeDims({4, 512}));
  }

  absl::Status Validate(const Op& op) { return ValidateOps({op}, slots_, {}); }

  template <class Change>
  void ExpectRefused(Change change, const testing::Matcher<std::string>& message) {
    GroupedMatmulOp op = op_;
    change(op);
    const absl::Status status = Validate(op);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("op 0 (grouped_matmul): "), message));
  }

  std::vector<SlotInfo> slots_ = std::vector<SlotInfo>(8, {4 << 20, false});
  GroupedMatmulOp op_;
};

TEST_F(OpValidateGroupedTest, AcceptsEveryLayout) {
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.layout = GroupLayout::kRowIds;
  op_.groups.shape[0] = 40;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.layout = GroupLayout::kEnds;
  op_.groups.shape[0] = 4;
  op_.alignment = 128;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.layout = GroupLayout::kCounts;
  op_.alignment = 1;
  op_.a.values = Dense(0, DType::kE4M3, MakeDims({4, 10, 256}));
  op_.a.scales = Dense(1, DType::kF32, MakeDims({4, 10, 2}));
  op_.d = Dense(5, DType::kE4M3, MakeDims({4, 10, 256}));
  op_.d_scales = Dense(6, DType::kF32, MakeDims({4, 10, 2}));
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateGroupedTest, AcceptsNoRowsAtAll) {
  op_.a.values.shape[0] = op_.a.scales->shape[0] = op_.d.shape[0] = op_.d_scales->shape[0] = 0;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
}

TEST_F(OpValidateGroupedTest, RefusesGroupsThatCannotBe) {
  ExpectRefused([](auto& op) { op.layout = static_cast<GroupLayout>(4); },
                HasSubstr("layout number 4"));
  ExpectRefused([](auto& op) { op.groups.dtype = DType::kF32; }, HasSubstr("groups is f32"));
  ExpectRefused([](auto& op) { op.groups.shape[0] = 4; },
                AllOf(HasSubstr("layout offsets"), HasSubstr("[5]")));
  ExpectRefused([](auto& op) { op.groups.strides[0] = 2; }, HasSubstr("stride 2"));
  ExpectRefused([](auto& op) { op.layout = GroupLayout::kRowIds; }, HasSubstr("[40]"));
  ExpectRefused([](auto& op) { op.layout = GroupLayout::kCounts; }, HasSubstr("3 dimensions"));
  ExpectRefused([](auto& op) { op.alignment = 128; }, HasSubstr("layout ends alone"));
  for (int64_t alignment : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    ExpectRefused(
        [&](auto& op) {
          op.layout = GroupLayout::kEnds;
          op.groups.shape[0] = 4;
          op.alignment = alignment;
        },
        HasSubstr("alignment="));
  }
}

TEST_F(OpValidateGroupedTest, RefusesNumbersOfGroupsOutOfRange) {
  for (int64_t groups : {0, 513}) {
    ExpectRefused(
        [&](auto& op) {
          op.b.values = Dense(2, DType::kE4M3, MakeDims({groups, 1, 256}));
          op.b.values.strides[0] = 1;
        },
        HasSubstr("outside 1 to 512"));
  }
  ExpectRefused(
      [](auto& op) {
        op.b.values = Dense(2, DType::kE4M3, MakeDims({512, 256}));
      },
      HasSubstr("[groups, n, k]"));
}

TEST_F(OpValidateGroupedTest, RefusesOperandsThatDoNotMatch) {
  ExpectRefused([](auto& op) { op.a.values.shape[1] = 255; }, HasSubstr("k=255"));
  ExpectRefused([](auto& op) { op.a.values.dtype = DType::kI8; }, HasSubstr("a is i8 but b is"));
  ExpectRefused([](auto& op) { op.a.values.dtype = op.b.values.dtype = DType::kI32; },
                HasSubstr("a is i32"));
  ExpectRefused([](auto& op) { op.b.scales->shape[1] = 3; }, HasSubstr("[4, 4, 2]"));
  ExpectRefused([](auto& op) { op.b.scales.reset(); }, HasSubstr("b.scales"));
  ExpectRefused(
      [](auto& op) {
        op.a.granularity = ScaleGranularity::kBlock128x128;
        op.a.scales->shape[0] = 1;
      },
      HasSubstr("use 1x128"));
}

TEST_F(OpValidateGroupedTest, RefusesResultsThatDoNotFit) {
  ExpectRefused([](auto& op) { op.d.shape[1] = 128; }, HasSubstr("gated a . b^T"));
  ExpectRefused([](auto& op) { op.d.dtype = DType::kI8; }, HasSubstr("d is i8"));
  ExpectRefused([](auto& op) { op.d_scales.reset(); }, HasSubstr("add f32 ones of [40, 2]"));
  ExpectRefused([](auto& op) { op.d.dtype = DType::kBF16; }, HasSubstr("d_scales are given"));
  ExpectRefused(
      [](auto& op) {
        op.gate.reset();
        op.d = Dense(5, DType::kE4M3, MakeDims({40, 512}));
      },
      HasSubstr("d is e4m3"));
  ExpectRefused([](auto& op) { op.d.slot = 0; }, HasSubstr("overlaps a"));
  ExpectRefused([](auto& op) { op.d_scales->slot = 4; }, HasSubstr("overlaps groups"));
  ExpectRefused([](auto& op) { op.bias->shape[0] = 3; }, HasSubstr("bias has shape [3, 512]"));
}

TEST_F(OpValidateGroupedTest, RefusesNumbersOutOfRange) {
  for (float alpha : {0.0f, std::numeric_limits<float>::infinity()}) {
    ExpectRefused([&](auto& op) { op.alpha = alpha; }, HasSubstr("alpha="));
  }
  ExpectRefused([](auto& op) { op.gate->period = 3; }, HasSubstr("does not divide n=256"));
  ExpectRefused([](auto& op) { op.gate->limit = -1; }, HasSubstr("limit=-1"));
  ExpectRefused([](auto& op) { op.gate->alone = true; }, HasSubstr("the gate is alone"));
  ExpectRefused([](auto& op) { op.activation = Activation::kRelu; }, HasSubstr("beside a gate"));
  ExpectRefused([](auto& op) { op.expected_rows = -1; }, HasSubstr("expected_rows=-1"));
}

// The op with its four matrices and their scales in slots 8 to 15.
class OpValidateTableTest : public OpValidateGroupedTest {
 protected:
  OpValidateTableTest() {
    slots_.resize(16, {512 * 256 + 64, false});
    for (int g = 0; g < 4; ++g) {
      op_.table.push_back({Dense(8 + 2 * g, DType::kE4M3, MakeDims({512, 256})),
                           ScaleGranularity::kBlock128x128,
                           Dense(9 + 2 * g, DType::kF32, MakeDims({4, 2}))});
    }
    op_.b = StackOf(op_.table[0], 4);
  }

  // The change made, and b the stack of what is first then.
  template <class Change>
  void ExpectTableRefused(Change change, const testing::Matcher<std::string>& message) {
    ExpectRefused(
        [&](GroupedMatmulOp& op) {
          change(op);
          op.b = StackOf(op.table[0], static_cast<int64_t>(op.table.size()));
        },
        message);
  }
};

TEST_F(OpValidateTableTest, AcceptsMatricesAnywhere) {
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  op_.table[1].values.offset_bytes = 63;
  op_.table[2].values = op_.table[3].values;
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  slots_[12].read_only = true;  // published
  EXPECT_TRUE(Validate(op_).ok()) << Validate(op_);
  EXPECT_EQ(Bytes(op_), 40.0 * 256 + 40 * 2 * 4 + 4 * (512 * 256 + 8 * 4) + 5 * 4 + 4 * 512 * 4 +
                            40 * 256 + 40 * 2 * 4);
  EXPECT_EQ(Flops(op_), 2.0 * 40 * 512 * 256);
}

TEST_F(OpValidateTableTest, FindsTheMatrixOfAGroup) {
  EXPECT_EQ(MatrixOf(op_, 3).values.slot, 14);
  EXPECT_EQ(op_.b.values.shape, MakeDims({4, 512, 256}));
  EXPECT_EQ(op_.b.values.strides, MakeDims({0, 256, 1}));
  op_.table.clear();
  op_.b.values = Dense(2, DType::kE4M3, MakeDims({4, 512, 256}));
  op_.b.scales = Dense(3, DType::kF32, MakeDims({4, 4, 2}));
  const Operand second = MatrixOf(op_, 2);
  EXPECT_EQ(second.values.offset_bytes, 2 * 512 * 256);
  EXPECT_EQ(second.values.shape, MakeDims({512, 256}));
  EXPECT_EQ(second.scales->offset_bytes, 2 * 8 * 4);
  EXPECT_EQ(second.scales->strides, MakeDims({2, 1}));
}

TEST_F(OpValidateTableTest, RefusesMatricesThatAreNoneOrUnlike) {
  ExpectTableRefused([](auto& op) { op.table[2].values.slot = 16; }, HasSubstr("weights[2]"));
  ExpectTableRefused([](auto& op) { op.table[1].values.offset_bytes = 65; },
                     AllOf(HasSubstr("weights[1]"), HasSubstr("131136")));
  ExpectTableRefused([](auto& op) { op.table[1].values.offset_bytes = -1; },
                     HasSubstr("weights[1]"));
  ExpectTableRefused([](auto& op) { op.table[1].scales->offset_bytes = 2; },
                     HasSubstr("weights[1].scales"));
  ExpectTableRefused([](auto& op) { op.table[3].values.dtype = DType::kI8; },
                     HasSubstr("weights[3] is i8 but weights[0] is e4m3"));
  ExpectTableRefused([](auto& op) { op.table[1].values.shape[0] = 500; },
                     HasSubstr("weights[1] has shape [500, 256] but weights[0] [512, 256]"));
  ExpectTableRefused([](auto& op) { op.table[1].values.strides[0] = 0; },
                     HasSubstr("weights[1] has strides [0, 1] but weights[0] [256, 1]"));
  ExpectTableRefused([](auto& op) { op.table[1].scales->strides[0] = 0; },
                     HasSubstr("weights[1].scales has strides [0, 1]"));
  ExpectTableRefused([](auto& op) { op.table[2].scales->shape[1] = 1; },
                     HasSubstr("weights[2].scales"));
  ExpectTableRefused([](auto& op) { op.table[2].scales.reset(); }, HasSubstr("weights[2].scales"));
  ExpectTableRefused(
      [](auto& op) {
        op.table[2].granularity = ScaleGranularity::kNone;
        op.table[2].scales.reset();
      },
      HasSubstr("weights[2] has scales of none but weights[0] of 128x128"));
  ExpectTableRefused(
      [](auto& op) {
        for (Operand& matrix : op.table)
          matrix.values = Dense(8, DType::kE4M3, MakeDims({2, 4, 256}));
      },
      AllOf(HasSubstr("weights[0] has shape [2, 4, 256]"), HasSubstr("[n, k]")));
  ExpectTableRefused([](auto& op) { op.table.resize(3); }, HasSubstr("[4]"));
  ExpectTableRefused([](auto& op) { op.table.resize(513, op.table[0]); },
                     AllOf(HasSubstr("513 matrices"), HasSubstr("limit 512")));
}

TEST_F(OpValidateTableTest, RefusesResultsOverMatrices) {
  ExpectTableRefused([](auto& op) { op.d.slot = 12; }, HasSubstr("overlaps weights[2]"));
  ExpectTableRefused([](auto& op) { op.d_scales->slot = 15; },
                     HasSubstr("overlaps weights[3].scales"));
}

TEST_F(OpValidateTableTest, RefusesAnotherB) {
  ExpectRefused([](auto& op) { op.b.values.slot = 2; }, HasSubstr("give either b or weights"));
  ExpectRefused([](auto& op) { op.b.values.strides[0] = 512 * 256; },
                HasSubstr("give either b or weights"));
}

TEST_F(OpValidateGroupedTest, CountsWhatItExpects) {
  EXPECT_EQ(Flops(op_), 2.0 * 40 * 512 * 256);
  op_.expected_rows = 8;
  EXPECT_EQ(Flops(op_), 2.0 * 8 * 512 * 256);
  op_.expected_rows = 80;
  EXPECT_EQ(ExpectedRows(op_), 40);
}

TEST_F(OpValidateGroupedTest, RoutesHaveShapesThatAgree) {
  RouteOp route{.ids = Dense(0, DType::kI32, MakeDims({6, 2})),
                .offsets = Dense(1, DType::kI32, MakeDims({5})),
                .rows = Dense(2, DType::kI32, MakeDims({12})),
                .positions = Dense(3, DType::kI32, MakeDims({6, 2}))};
  EXPECT_TRUE(Validate(route).ok()) << Validate(route);
  const auto refused = [&](auto change, const char* text) {
    RouteOp changed = route;
    change(changed);
    const absl::Status status = Validate(changed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused([](RouteOp& op) { op.rows.shape[0] = 11; }, "[12]");
  refused([](RouteOp& op) { op.positions.shape[1] = 1; }, "ids asks for");
  refused([](RouteOp& op) { op.offsets.shape[0] = 1; }, "0 experts");
  refused([](RouteOp& op) { op.offsets.shape[0] = 514; }, "513 experts");
  refused([](RouteOp& op) { op.ids.dtype = DType::kF32; }, "ids is f32");
  refused([](RouteOp& op) { op.rows.slot = 1; }, "overlaps");
}

TEST_F(OpValidateGroupedTest, CombinesHaveShapesThatAgree) {
  CombineOp combine{.src = Dense(0, DType::kBF16, MakeDims({12, 64})),
                    .positions = Dense(1, DType::kI32, MakeDims({6, 2})),
                    .weights = Dense(2, DType::kF32, MakeDims({6, 2})),
                    .dst = Dense(3, DType::kBF16, MakeDims({6, 64}))};
  EXPECT_TRUE(Validate(combine).ok()) << Validate(combine);
  const auto refused = [&](auto change, const char* text) {
    CombineOp changed = combine;
    change(changed);
    const absl::Status status = Validate(changed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  refused([](CombineOp& op) { op.dst.shape[0] = 5; }, "tokens of positions");
  refused([](CombineOp& op) { op.weights.shape[1] = 1; }, "weights has shape");
  refused([](CombineOp& op) { op.src.dtype = DType::kI8; }, "src is i8");
  refused([](CombineOp& op) { op.dst.slot = 0; }, "overlaps src");
}

TEST_F(OpValidateGroupedTest, NumbersAreMovedAndNotConverted) {
  const TensorRef numbers = Dense(0, DType::kI32, MakeDims({4}));
  const TensorRef others = Dense(1, DType::kI32, MakeDims({4}));
  const TensorRef floats = Dense(2, DType::kF32, MakeDims({4}));
  EXPECT_TRUE(Validate(CopyOp{numbers, others}).ok());
  EXPECT_TRUE(Validate(FillOp{numbers, -1}).ok());
  EXPECT_THAT(std::string(Validate(ConvertOp{numbers, floats}).message()), HasSubstr("src is i32"));
  EXPECT_THAT(std::string(Validate(ConvertOp{floats, numbers}).message()), HasSubstr("dst is i32"));
}

TEST_F(OpValidateGroupedTest, GatheredRowsHaveShapesThatAgree) {
  QuantizeOp op{Dense(0, DType::kBF16, MakeDims({6, 256})),
                Dense(1, DType::kE4M3, MakeDims({9, 256})), Dense(2, DType::kF32, MakeDims({9, 2})),
                ScaleGranularity::kBlock1x128, Dense(3, DType::kI32, MakeDims({9}))};
  EXPECT_TRUE(Validate(op).ok()) << Validate(op);
  op.rows->shape[0] = 6;
  EXPECT_THAT(std::string(Validate(op).message()), HasSubstr("the rows of dst"));
  op.rows->shape[0] = 9;
  op.granularity = ScaleGranularity::kBlock128x128;
  op.scales.shape[0] = 1;
  EXPECT_THAT(std::string(Validate(op).message()), HasSubstr("use row or 1x128"));
}

}  // namespace
}  // namespace gemmd::kernels
