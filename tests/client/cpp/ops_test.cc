#include "client/cpp/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor T(char name, absl::Span<const int64_t> shape, DType dtype = DType::kF32) {
  return Tensor(*Handle::FromBytes(std::string(16, name)), dtype, shape, 8);
}

v1::ExecuteRequest Parsed(const OpList& ops) {
  v1::ExecuteRequest request;
  EXPECT_TRUE(request.ParseFromString(std::string(ops.wire())));
  return request;
}

TEST(OpListTest, MatmulArrivesAsItWasWritten) {
  OpList ops;
  ops.Add(Matmul{.a = {T('a', {4, 8}, DType::kE4M3), ScaleGranularity::kBlock1x128, T('s', {4, 1})},
                 .b = T('b', {8, 6}, DType::kE4M3).Transposed(),
                 .d = T('d', {4, 6}),
                 .c = T('c', {4, 6}),
                 .bias = T('i', {6}),
                 .alpha = 0.5f,
                 .beta = 2,
                 .activation = Activation::kRelu,
                 .kernel = "cpu_f32"});
  const v1::ExecuteRequest request = Parsed(ops);
  ASSERT_EQ(request.ops_size(), 1);
  const v1::Matmul& matmul = request.ops(0).matmul();
  EXPECT_EQ(matmul.a().values().buffer_id(), std::string(16, 'a'));
  EXPECT_EQ(matmul.a().values().dtype(), v1::DTYPE_E4M3);
  EXPECT_EQ(matmul.a().values().offset_bytes(), 8);
  EXPECT_EQ(matmul.a().granularity(), v1::SCALE_GRANULARITY_BLOCK_1X128);
  EXPECT_THAT(matmul.a().scales().shape(), ElementsAre(4, 1));
  EXPECT_EQ(matmul.a().values().strides_size(), 0) << "dense: the default";
  EXPECT_THAT(matmul.b().values().shape(), ElementsAre(6, 8));
  EXPECT_THAT(matmul.b().values().strides(), ElementsAre(1, 6));
  EXPECT_EQ(matmul.d().buffer_id(), std::string(16, 'd'));
  EXPECT_EQ(matmul.c().buffer_id(), std::string(16, 'c'));
  EXPECT_EQ(matmul.bias().buffer_id(), std::string(16, 'i'));
  EXPECT_EQ(matmul.alpha(), 0.5f);
  EXPECT_EQ(matmul.beta(), 2);
  EXPECT_EQ(matmul.activation(), v1::ACTIVATION_RELU);
  EXPECT_EQ(matmul.kernel(), "cpu_f32");
}

TEST(OpListTest, MatmulLeavesOutWhatIsNotThere) {
  OpList ops;
  ops.Add(Matmul{.a = T('a', {4, 8}), .b = T('b', {6, 8}), .d = T('d', {4, 6}), .alpha = 0});
  const v1::ExecuteRequest request = Parsed(ops);
  const v1::Matmul& matmul = request.ops(0).matmul();
  EXPECT_FALSE(matmul.has_c());
  EXPECT_FALSE(matmul.has_bias());
  EXPECT_FALSE(matmul.a().has_scales());
  EXPECT_TRUE(matmul.has_alpha()) << "0 differs from unset, which is 1";
  EXPECT_EQ(matmul.alpha(), 0);
}

TEST(OpListTest, GatedArrivesAsItWasWritten) {
  OpList ops;
  ops.Add(Gated{.src = T('a', {4, 512}), .dst = T('d', {4, 256})})
      .Add(Gated{.src = T('a', {4, 512}),
                 .dst = T('d', {4, 256}, DType::kE4M3),
                 .scales = T('s', {4, 2}),
                 .activation = Activation::kGeluErf,
                 .period = 128,
                 .alpha = 1.702f,
                 .limit = 7,
                 .up_offset = 1});
  const v1::ExecuteRequest request = Parsed(ops);
  ASSERT_EQ(request.ops_size(), 2);
  const v1::Gated& plain = request.ops(0).gated();
  EXPECT_EQ(plain.src().buffer_id(), std::string(16, 'a'));
  EXPECT_EQ(plain.dst().buffer_id(), std::string(16, 'd'));
  EXPECT_FALSE(plain.has_scales());
  EXPECT_EQ(plain.activation(), v1::ACTIVATION_SILU);
  EXPECT_EQ(plain.period(), 0);
  EXPECT_FALSE(plain.has_alpha()) << "unset is 1";
  EXPECT_EQ(plain.limit(), 0);
  EXPECT_EQ(plain.up_offset(), 0);
  const v1::Gated& full = request.ops(1).gated();
  EXPECT_EQ(full.scales().buffer_id(), std::string(16, 's'));
  EXPECT_EQ(full.activation(), v1::ACTIVATION_GELU_ERF);
  EXPECT_EQ(full.period(), 128);
  EXPECT_EQ(full.alpha(), 1.702f);
  EXPECT_EQ(full.limit(), 7);
  EXPECT_EQ(full.up_offset(), 1);
}

TEST(OpListTest, NormalizeArrivesAsItWasWritten) {
  OpList ops;
  ops.Add(Normalize{.src = T('a', {4, 256}), .dst = T('d', {4, 256})})
      .Add(Normalize{.src = T('a', {4, 256}),
                     .dst = T('d', {4, 256}, DType::kE4M3),
                     .scales = T('s', {4, 2}),
                     .weight = T('w', {256}),
                     .bias = T('b', {256}),
                     .epsilon = 0,
                     .centered = true,
                     .addend = T('e', {4, 256}),
                     .sum = T('x', {4, 256})});
  const v1::ExecuteRequest request = Parsed(ops);
  ASSERT_EQ(request.ops_size(), 2);
  const v1::Normalize& plain = request.ops(0).normalize();
  EXPECT_EQ(plain.src().buffer_id(), std::string(16, 'a'));
  EXPECT_EQ(plain.dst().buffer_id(), std::string(16, 'd'));
  EXPECT_FALSE(plain.has_scales() || plain.has_weight() || plain.has_bias());
  EXPECT_FALSE(plain.has_addend() || plain.has_sum());
  EXPECT_FALSE(plain.has_epsilon()) << "unset is 1e-5";
  EXPECT_FALSE(plain.centered());
  const v1::Normalize& full = request.ops(1).normalize();
  EXPECT_EQ(full.dst().dtype(), v1::DTYPE_E4M3);
  EXPECT_EQ(full.scales().buffer_id(), std::string(16, 's'));
  EXPECT_EQ(full.weight().buffer_id(), std::string(16, 'w'));
  EXPECT_EQ(full.bias().buffer_id(), std::string(16, 'b'));
  EXPECT_EQ(full.addend().buffer_id(), std::string(16, 'e'));
  EXPECT_EQ(full.sum().buffer_id(), std::string(16, 'x'));
  EXPECT_TRUE(full.has_epsilon()) << "0 differs from unset, which is 1e-5";
  EXPECT_EQ(full.epsilon(), 0);
  EXPECT_TRUE(full.centered());
}

TEST(OpListTest, AChoiceArrivesAsItWasWritten) {
  ChooseExperts choose{.logits = T('l', {4, 64}, DType::kBF16),
                       .experts = T('e', {4, 8}, DType::kI32),
                       .weights = T('w', {4, 8})};
  OpList ops;
  ops.Add(choose);
  choose.bias = T('b', {64});
  choose.scores = RouterScores::kSigmoid;
  choose.renormalize = false;
  choose.scale = 2.5f;
  choose.groups = 8;
  choose.top_groups = 4;
  choose.group_score = GroupScore::kTop2Sum;
  const v1::ExecuteRequest request = Parsed(ops.Add(choose));
  ASSERT_EQ(request.ops_size(), 2);
  const v1::Choose& plain = request.ops(0).choose();
  EXPECT_EQ(plain.logits().buffer_id(), std::string(16, 'l'));
  EXPECT_EQ(plain.experts().buffer_id(), std::string(16, 'e'));
  EXPECT_EQ(plain.weights().buffer_id(), std::string(16, 'w'));
  EXPECT_FALSE(plain.has_bias());
  EXPECT_FALSE(plain.has_scale()) << "unset is 1";
  EXPECT_EQ(plain.scores(), v1::ROUTER_SCORES_SOFTMAX);
  EXPECT_TRUE(plain.renormalize());
  EXPECT_EQ(plain.groups(), 0);
  EXPECT_EQ(plain.top_groups(), 0);
  const v1::Choose& full = request.ops(1).choose();
  EXPECT_EQ(full.bias().buffer_id(), std::string(16, 'b'));
  EXPECT_EQ(full.scores(), v1::ROUTER_SCORES_SIGMOID);
  EXPECT_FALSE(full.renormalize());
  EXPECT_EQ(full.scale(), 2.5f);
  EXPECT_EQ(full.groups(), 8);
  EXPECT_EQ(full.top_groups(), 4);
  EXPECT_EQ(full.group_score(), v1::GROUP_SCORE_TOP2_SUM);
}

TEST(OpListTest, AMatmulsGateArrives) {
  OpList ops;
  Matmul matmul{.a = T('a', {4, 512}), .b = T('b', {512, 512}), .d = T('d', {4, 256})};
  ops.Add(matmul);
  matmul.gate = Gate{Activation::kSilu, 128, 1.5f, 7, 1};
  matmul.d_scales = T('s', {4, 2});
  ops.Add(matmul);
  const v1::ExecuteRequest request = Parsed(ops);
  ASSERT_EQ(request.ops_size(), 2);
  EXPECT_FALSE(request.ops(0).matmul().has_gate() || request.ops(0).matmul().has_d_scales());
  const v1::Matmul& full = request.ops(1).matmul();
  EXPECT_EQ(full.d_scales().buffer_id(), std::string(16, 's'));
  EXPECT_EQ(full.gate().activation(), v1::ACTIVATION_SILU);
  EXPECT_EQ(full.gate().period(), 128);
  EXPECT_EQ(full.gate().alpha(), 1.5f);
  EXPECT_EQ(full.gate().limit(), 7);
  EXPECT_EQ(full.gate().up_offset(), 1);
}

TEST(OpListTest, OpsOfExpertsArriveWithEveryField) {
  const Tensor numbers = T('g', {3}, DType::kI32);
  GroupedMatmul grouped{.a = T('a', {6, 8}), .b = T('b', {2, 4, 8}), .groups = numbers};
  grouped.d = T('d', {6, 4});
  OpList ops;
  ops.Add(grouped);
  grouped.layout = GroupLayout::kEnds;
  grouped.alignment = 128;
  grouped.d_scales = T('s', {6, 1});
  grouped.gate = Gate{Activation::kGeluErf, 1, 1.5f, 7, 1};
  grouped.bias = T('c', {2, 4});
  grouped.alpha = 2;
  grouped.activation = Activation::kRelu;
  grouped.expected_rows = 5;
  grouped.kernel = "one";
  ops.Add(grouped)
      .Add(RouteRows{T('i', {3, 2}, DType::kI32), T('o', {5}, DType::kI32),
                     T('r', {6}, DType::kI32), T('p', {3, 2}, DType::kI32)})
      .Add(Combine{T('a', {6, 8}), T('p', {3, 2}, DType::kI32), T('w', {3, 2}), T('d', {3, 8})});
  const v1::ExecuteRequest request = Parsed(ops);
  ASSERT_EQ(request.ops_size(), 4);
  const v1::GroupedMatmul& plain = request.ops(0).grouped_matmul();
  EXPECT_EQ(plain.groups().dtype(), v1::DTYPE_I32);
  EXPECT_EQ(plain.d().buffer_id(), std::string(16, 'd'));
  EXPECT_FALSE(plain.has_gate() || plain.has_alpha() || plain.has_bias() || plain.has_d_scales());
  EXPECT_EQ(plain.layout(), v1::GROUP_LAYOUT_OFFSETS);
  EXPECT_EQ(plain.alignment(), 0);
  const v1::GroupedMatmul& full = request.ops(1).grouped_matmul();
  EXPECT_EQ(full.layout(), v1::GROUP_LAYOUT_ENDS);
  EXPECT_EQ(full.alignment(), 128);
  EXPECT_EQ(full.d_scales().buffer_id(), std::string(16, 's'));
  EXPECT_EQ(full.gate().activation(), v1::ACTIVATION_GELU_ERF);
  EXPECT_EQ(full.gate().period(), 1);
  EXPECT_EQ(full.gate().alpha(), 1.5f);
  EXPECT_EQ(full.gate().limit(), 7);
  EXPECT_EQ(full.gate().up_offset(), 1);
  EXPECT_EQ(full.bias().buffer_id(), std::string(16, 'c'));
  EXPECT_EQ(full.alpha(), 2);
  EXPECT_EQ(full.activation(), v1::ACTIVATION_RELU);
  EXPECT_EQ(full.expected_rows(), 5);
  EXPECT_EQ(full.kernel(), "one");
  EXPECT_EQ(request.ops(2).route().positions().buffer_id(), std::string(16, 'p'));
  EXPECT_EQ(request.ops(2).route().rows().buffer_id(), std::string(16, 'r'));
  EXPECT_EQ(request.ops(3).combine().weights().buffer_id(), std::string(16, 'w'));
  EXPECT_EQ(plain.weights_size(), 0);
}

TEST(OpListTest, MatricesThatLieApartArriveInOrder) {
  GroupedMatmul grouped{.a = T('a', {6, 8}), .groups = T('g', {3}, DType::kI32)};
  grouped.d = T('d', {6, 4});
  grouped.weights = {T('v', {4, 8}),
                     {T('w', {4, 8}, DType::kI8), ScaleGranularity::kPerRow, T('s', {4})}};
  OpList ops;
  const v1::ExecuteRequest request = Parsed(ops.Add(grouped));
  const v1::GroupedMatmul& op = request.ops(0).grouped_matmul();
  EXPECT_FALSE(op.has_b());
  ASSERT_EQ(op.weights_size(), 2);
  EXPECT_EQ(op.weights(0).values().buffer_id(), std::string(16, 'v'));
  EXPECT_FALSE(op.weights(0).has_scales());
  EXPECT_EQ(op.weights(1).values().dtype(), v1::DTYPE_I8);
  EXPECT_EQ(op.weights(1).granularity(), v1::SCALE_GRANULARITY_PER_ROW);
  EXPECT_EQ(op.weights(1).scales().buffer_id(), std::string(16, 's'));
  // Both are the caller's mistake, which the server names.
  grouped.b = T('b', {2, 4, 8});
  EXPECT_TRUE(Parsed(OpList().Add(grouped)).ops(0).grouped_matmul().has_b());
}

TEST(OpListTest, AnInvalidMatrixAmongMany) {
  GroupedMatmul grouped{.a = T('a', {6, 8}), .groups = T('g', {3}, DType::kI32)};
  grouped.d = T('d', {6, 4});
  grouped.weights = {T('v', {4, 8}), T('w', {4, 8}).Slice(0, 3, 9)};
  OpList ops;
  ops.Add(grouped).Add(Fill{T('a', {4}), 1});
  EXPECT_EQ(ops.size(), 0);
  EXPECT_THAT(std::string(ops.status().message()),
              testing::StartsWith("op 0 (grouped_matmul): weights[1]: "));
}

TEST(OpListTest, EveryKindOfOpArrivesInOrder) {
  const std::string data(300000, 'x');  // a length of three bytes, moved by nobody
  OpList ops;
  ops.Add(Write{T('a', {75000}), data})
      .Add(Quantize{T('a', {4, 8}), T('b', {4, 8}, DType::kI8), T('s', {4}),
                    ScaleGranularity::kPerRow})
      .Add(Convert{T('a', {4}), T('b', {4}, DType::kBF16)})
      .Add(Copy{T('a', {4}), T('b', {4})})
      .Add(Fill{T('a', {4}), -1.5})
      .Add(Fill{T('a', {4}), 0})
      .Add(Read{T('b', {4})});
  const v1::ExecuteRequest request = Parsed(ops);
  ASSERT_EQ(request.ops_size(), 7);
  EXPECT_EQ(request.ops(0).write().data(), data);
  EXPECT_EQ(request.ops(0).write().dst().buffer_id(), std::string(16, 'a'));
  EXPECT_EQ(request.ops(1).quantize().granularity(), v1::SCALE_GRANULARITY_PER_ROW);
  EXPECT_EQ(request.ops(1).quantize().scales().buffer_id(), std::string(16, 's'));
  EXPECT_EQ(request.ops(2).convert().dst().dtype(), v1::DTYPE_BF16);
  EXPECT_EQ(request.ops(3).copy().src().buffer_id(), std::string(16, 'a'));
  EXPECT_EQ(request.ops(4).fill().value(), -1.5);
  EXPECT_TRUE(request.ops(5).has_fill());
  EXPECT_EQ(request.ops(6).read().src().buffer_id(), std::string(16, 'b'));
  EXPECT_EQ(ops.size(), 7);
  EXPECT_EQ(ops.reads(), 1);
  EXPECT_EQ(ops.inline_bytes(), 300000);
}

TEST(OpListTest, WhatIsSharedStaysAsItWas) {
  OpList ops;
  ops.Add(Read{T('a', {4})});
  const std::string one = std::string(ops.wire());
  WireBytes::Block* sent = ops.Share();
  OpList copy = ops;
  ops.Add(Read{T('b', {4})});
  EXPECT_EQ(sent->bytes, one);
  EXPECT_EQ(copy.wire(), one);
  EXPECT_GT(ops.wire().size(), one.size());
  copy.Clear();
  EXPECT_EQ(sent->bytes, one);
  WireBytes::Release(sent);
  // Nobody has it any more: cleared, it keeps its memory.
  const char* memory = ops.wire().data();
  ops.Clear();
  ops.Add(Read{T('a', {4})});
  EXPECT_EQ(ops.wire().data(), memory);
  EXPECT_EQ(ops.wire(), one);
}

TEST(OpListTest, FirstInvalidTensorIsNamedWithItsPlace) {
  OpList ops;
  ops.Add(Read{T('a', {4})}).Add(Copy{T('a', {4}), T('b', {4}).Slice(0, 2, 9)});
  ops.Add(Copy{Tensor(), T('b', {4}).Slice(0, 3, 9)});
  EXPECT_EQ(ops.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ops.status().message()),
              HasSubstr("op 1 (copy): dst: slice of 9 from 2"));
  ops.Clear();
  EXPECT_TRUE(ops.status().ok());
  EXPECT_EQ(ops.size(), 0);
  EXPECT_TRUE(ops.wire().empty());
}

}  // namespace
}  // namespace gemmd::client
