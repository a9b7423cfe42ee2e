// Every field of every op arrives.

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/service/convert_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

template <size_t... i>
std::vector<std::string> NamesOfOps(std::index_sequence<i...>) {
  return {std::string(kernels::Name(std::variant_alternative_t<i, kernels::Op>()))...};
}

TEST_F(ConvertTest, OpsAreCalledAsTheWireCallsThem) {
  const auto& kinds = *v1::Op::descriptor()->FindOneofByName("kind");
  std::vector<std::string> names;
  for (int i = 0; i < kinds.field_count(); ++i) names.push_back(kinds.field(i)->name());
  constexpr size_t kKinds = std::variant_size_v<kernels::Op>;
  EXPECT_THAT(NamesOfOps(std::make_index_sequence<kKinds>()),
              testing::UnorderedElementsAreArray(names));
  EXPECT_THAT(Convert(v1::Op()).status().message(),
              HasSubstr("combine, gated, k_grouped_matmul, normalize"));
}

TEST_F(ConvertTest, EveryFieldOfGatedArrives) {
  v1::Op op;
  v1::Gated& gated = *op.mutable_gated();
  *gated.mutable_src() = Tensor(typed_, "");
  *gated.mutable_dst() = Tensor(plain_, "dtype: DTYPE_E4M3 shape: 4 shape: 4");
  auto converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto plain = std::get<kernels::GatedOp>(converted->ops[0]);
  EXPECT_EQ(plain.activation, kernels::Activation::kNone);
  EXPECT_EQ(plain.alpha, 1);
  EXPECT_FALSE(plain.scales);
  *gated.mutable_scales() = Tensor(plain_, "dtype: DTYPE_F32 shape: 4 shape: 1 offset_bytes: 64");
  gated.set_activation(v1::ACTIVATION_SILU);
  gated.set_period(2);
  gated.set_alpha(1.5);
  gated.set_limit(7);
  gated.set_up_offset(1);
  gated.set_alone(true);
  converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto full = std::get<kernels::GatedOp>(converted->ops[0]);
  EXPECT_EQ(full.src.dtype, kernels::DType::kBF16);
  EXPECT_EQ(full.dst.dtype, kernels::DType::kE4M3);
  EXPECT_EQ(full.scales->offset_bytes, 64);
  EXPECT_EQ(full.activation, kernels::Activation::kSilu);
  EXPECT_EQ(full.period, 2);
  EXPECT_EQ(full.alpha, 1.5f);
  EXPECT_EQ(full.limit, 7);
  EXPECT_EQ(full.up_offset, 1);
  EXPECT_TRUE(full.alone);
}

TEST_F(ConvertTest, EveryFieldOfNormalizeArrives) {
  v1::Op op;
  v1::Normalize& normalize = *op.mutable_normalize();
  *normalize.mutable_src() = Tensor(typed_, "");
  *normalize.mutable_dst() = Tensor(plain_, "dtype: DTYPE_E4M3 shape: 4 shape: 8");
  auto converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto plain = std::get<kernels::NormalizeOp>(converted->ops[0]);
  EXPECT_EQ(plain.epsilon, 1e-5f);
  EXPECT_FALSE(plain.centered);
  EXPECT_FALSE(plain.scales || plain.weight || plain.bias || plain.addend || plain.sum);
  *normalize.mutable_scales() =
      Tensor(plain_, "dtype: DTYPE_F32 shape: 4 shape: 1 offset_bytes: 64");
  *normalize.mutable_weight() = Tensor(plain_, "dtype: DTYPE_F32 shape: 8 offset_bytes: 128");
  *normalize.mutable_bias() = Tensor(plain_, "dtype: DTYPE_F32 shape: 8 offset_bytes: 192");
  *normalize.mutable_addend() =
      Tensor(plain_, "dtype: DTYPE_BF16 shape: 4 shape: 8 offset_bytes: 256");
  *normalize.mutable_sum() =
      Tensor(plain_, "dtype: DTYPE_BF16 shape: 4 shape: 8 offset_bytes: 320");
  normalize.set_epsilon(0);
  normalize.set_centered(true);
  converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto full = std::get<kernels::NormalizeOp>(converted->ops[0]);
  EXPECT_EQ(full.src.dtype, kernels::DType::kBF16);
  EXPECT_EQ(full.dst.dtype, kernels::DType::kE4M3);
  EXPECT_EQ(full.scales->offset_bytes, 64);
  EXPECT_EQ(full.weight->offset_bytes, 128);
  EXPECT_EQ(full.bias->offset_bytes, 192);
  EXPECT_EQ(full.addend->offset_bytes, 256);
  EXPECT_EQ(full.addend->dtype, kernels::DType::kBF16);
  EXPECT_EQ(full.sum->offset_bytes, 320);
  EXPECT_EQ(full.sum->dtype, kernels::DType::kBF16);
  EXPECT_EQ(full.epsilon, 0) << "0 differs from unset, which is 1e-5";
  EXPECT_TRUE(full.centered);
  normalize.clear_dst();
  EXPECT_THAT(std::string(Convert(op).status().message()),
              HasSubstr("ops[0].normalize.dst: missing"));
}

TEST_F(ConvertTest, EveryFieldOfChooseArrives) {
  v1::Op op;
  v1::Choose& choose = *op.mutable_choose();
  *choose.mutable_logits() = Tensor(typed_, "");
  *choose.mutable_experts() = Tensor(plain_, "dtype: DTYPE_I32 shape: 4 shape: 2");
  *choose.mutable_weights() = Tensor(plain_, "dtype: DTYPE_F32 shape: 4 shape: 2 offset_bytes: 64");
  auto converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto plain = std::get<kernels::ChooseOp>(converted->ops[0]);
  EXPECT_FALSE(plain.bias || plain.renormalize);
  EXPECT_EQ(plain.scores, kernels::RouterScores::kSoftmax);
  EXPECT_EQ(plain.scale, 1) << "unset is 1";
  EXPECT_EQ(plain.groups, 1) << "0 is 1";
  EXPECT_EQ(plain.top_groups, 1);
  EXPECT_EQ(plain.group_score, kernels::GroupScore::kMax);
  *choose.mutable_bias() = Tensor(plain_, "dtype: DTYPE_F32 shape: 8 offset_bytes: 128");
  choose.set_scores(v1::ROUTER_SCORES_SIGMOID);
  choose.set_renormalize(true);
  choose.set_scale(2.5f);
  choose.set_groups(4);
  choose.set_top_groups(3);
  choose.set_group_score(v1::GROUP_SCORE_TOP2_SUM);
  converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto full = std::get<kernels::ChooseOp>(converted->ops[0]);
  EXPECT_EQ(full.logits.dtype, kernels::DType::kBF16);
  EXPECT_EQ(full.experts.dtype, kernels::DType::kI32);
  EXPECT_EQ(full.weights.offset_bytes, 64);
  EXPECT_EQ(full.bias->offset_bytes, 128);
  EXPECT_EQ(full.scores, kernels::RouterScores::kSigmoid);
  EXPECT_TRUE(full.renormalize);
  EXPECT_EQ(full.scale, 2.5f);
  EXPECT_EQ(full.groups, 4);
  EXPECT_EQ(full.top_groups, 3);
  EXPECT_EQ(full.group_score, kernels::GroupScore::kTop2Sum);
  choose.set_scale(0);
  EXPECT_EQ(std::get<kernels::ChooseOp>(Convert(op)->ops[0]).scale, 0) << "0 differs from unset";
  choose.set_scores(static_cast<v1::RouterScores>(9));
  EXPECT_THAT(std::string(Convert(op).status().message()),
              HasSubstr("ops[0].choose: scores 9 is not known here"));
  choose.set_scores(v1::ROUTER_SCORES_SOFTMAX);
  choose.set_group_score(static_cast<v1::GroupScore>(9));
  EXPECT_THAT(std::string(Convert(op).status().message()),
              HasSubstr("ops[0].choose: group_score 9 is not known here"));
  choose.clear_weights();
  EXPECT_THAT(std::string(Convert(op).status().message()),
              HasSubstr("ops[0].choose.weights: missing"));
}

TEST_F(ConvertTest, TheGateOfAMatmulArrives) {
  v1::Op op;
  v1::Matmul& matmul = *op.mutable_matmul();
  *matmul.mutable_a()->mutable_values() = Tensor(typed_, "");
  *matmul.mutable_b()->mutable_values() = Tensor(typed_, "");
  *matmul.mutable_d() = Tensor(plain_, "dtype: DTYPE_E4M3 shape: 4 shape: 4");
  auto converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto plain = std::get<kernels::MatmulOp>(converted->ops[0]);
  EXPECT_FALSE(plain.gate || plain.d_scales);
  *matmul.mutable_d_scales() = Tensor(plain_, "dtype: DTYPE_F32 shape: 4 offset_bytes: 64");
  v1::Gate& gate = *matmul.mutable_gate();
  gate.set_period(2);
  gate.set_limit(7);
  converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto full = std::get<kernels::MatmulOp>(converted->ops[0]);
  EXPECT_EQ(full.d_scales->offset_bytes, 64);
  EXPECT_EQ(full.gate->activation, kernels::Activation::kNone);
  EXPECT_EQ(full.gate->period, 2);
  EXPECT_EQ(full.gate->alpha, 1);
  EXPECT_EQ(full.gate->limit, 7);
  gate.set_activation(static_cast<v1::Activation>(77));
  EXPECT_THAT(std::string(Convert(op).status().message()),
              HasSubstr("ops[0].matmul.gate: activation 77 is not known"));
}

TEST_F(ConvertTest, EveryFieldOfAGroupedMatmulArrives) {
  v1::Op op;
  v1::GroupedMatmul& grouped = *op.mutable_grouped_matmul();
  *grouped.mutable_a()->mutable_values() = Tensor(typed_, "");
  *grouped.mutable_b()->mutable_values() = Tensor(typed_, "");
  *grouped.mutable_groups() = Tensor(plain_, "dtype: DTYPE_I32 shape: 3");
  *grouped.mutable_d() = Tensor(plain_, "dtype: DTYPE_F32 shape: 4 shape: 4");
  auto converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto plain = std::get<kernels::GroupedMatmulOp>(converted->ops[0]);
  EXPECT_EQ(plain.layout, kernels::GroupLayout::kOffsets);
  EXPECT_EQ(plain.alignment, 1);
  EXPECT_EQ(plain.alpha, 1);
  EXPECT_FALSE(plain.gate || plain.bias || plain.d_scales);
  grouped.set_layout(v1::GROUP_LAYOUT_ENDS);
  grouped.set_alignment(16);
  *grouped.mutable_d_scales() = Tensor(plain_, "dtype: DTYPE_F32 shape: 4 offset_bytes: 64");
  *grouped.mutable_bias() = Tensor(plain_, "dtype: DTYPE_F32 shape: 4 offset_bytes: 128");
  grouped.set_alpha(0.5);
  grouped.set_activation(v1::ACTIVATION_RELU);
  grouped.set_kernel("one");
  grouped.set_expected_rows(7);
  v1::Gate& gate = *grouped.mutable_gate();
  gate.set_activation(v1::ACTIVATION_SILU);
  gate.set_period(2);
  gate.set_alpha(1.5);
  gate.set_limit(7);
  gate.set_up_offset(1);
  gate.set_alone(true);
  converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto full = std::get<kernels::GroupedMatmulOp>(converted->ops[0]);
  EXPECT_EQ(full.groups.dtype, kernels::DType::kI32);
  EXPECT_EQ(full.layout, kernels::GroupLayout::kEnds);
  EXPECT_EQ(full.alignment, 16);
  EXPECT_EQ(full.d_scales->offset_bytes, 64);
  EXPECT_EQ(full.bias->offset_bytes, 128);
  EXPECT_EQ(full.alpha, 0.5f);
  EXPECT_EQ(full.activation, kernels::Activation::kRelu);
  EXPECT_EQ(full.kernel, "one");
  EXPECT_EQ(full.expected_rows, 7);
  EXPECT_EQ(full.gate->activation, kernels::Activation::kSilu);
  EXPECT_EQ(full.gate->period, 2);
  EXPECT_EQ(full.gate->alpha, 1.5f);
  EXPECT_EQ(full.gate->limit, 7);
  EXPECT_EQ(full.gate->up_offset, 1);
  EXPECT_TRUE(full.gate->alone);
}

TEST_F(ConvertTest, EveryFieldOfAKGroupedMatmulArrives) {
  v1::Op op;
  v1::KGroupedMatmul& grouped = *op.mutable_k_grouped_matmul();
  *grouped.mutable_a()->mutable_values() = Tensor(typed_, "");
  *grouped.mutable_b()->mutable_values() = Tensor(plain_, "dtype: DTYPE_E5M2 shape: 4 shape: 8");
  *grouped.mutable_groups() = Tensor(plain_, "dtype: DTYPE_I32 shape: 3");
  *grouped.mutable_d() = Tensor(plain_, "dtype: DTYPE_F32 shape: 2 shape: 4 shape: 4");
  auto converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto plain = std::get<kernels::KGroupedMatmulOp>(converted->ops[0]);
  EXPECT_EQ(plain.b.values.dtype, kernels::DType::kE5M2);
  EXPECT_EQ(plain.layout, kernels::GroupLayout::kOffsets);
  EXPECT_EQ(plain.alignment, 1);
  EXPECT_EQ(plain.alpha, 1);
  EXPECT_EQ(plain.beta, 0);
  EXPECT_FALSE(plain.c);
  grouped.set_layout(v1::GROUP_LAYOUT_ENDS);
  grouped.set_alignment(128);
  *grouped.mutable_c() = Tensor(plain_, "dtype: DTYPE_F32 shape: 2 shape: 4 shape: 4");
  grouped.mutable_c()->set_offset_bytes(64);
  grouped.set_alpha(0.5);
  grouped.set_beta(1);
  grouped.set_kernel("one");
  converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto full = std::get<kernels::KGroupedMatmulOp>(converted->ops[0]);
  EXPECT_EQ(full.layout, kernels::GroupLayout::kEnds);
  EXPECT_EQ(full.alignment, 128);
  EXPECT_EQ(full.c->offset_bytes, 64);
  EXPECT_EQ(full.alpha, 0.5f);
  EXPECT_EQ(full.beta, 1);
  EXPECT_EQ(full.kernel, "one");
  grouped.set_layout(static_cast<v1::GroupLayout>(77));
  EXPECT_THAT(std::string(Convert(op).status().message()), HasSubstr("layout 77 is not known"));
}

TEST_F(ConvertTest, MatricesThatLieApartArrive) {
  v1::Op op;
  v1::GroupedMatmul& grouped = *op.mutable_grouped_matmul();
  *grouped.mutable_a()->mutable_values() = Tensor(typed_, "");
  *grouped.mutable_groups() = Tensor(plain_, "dtype: DTYPE_I32 shape: 3");
  *grouped.mutable_d() = Tensor(plain_, "dtype: DTYPE_F32 shape: 4 shape: 4");
  for (const char* place : {"offset_bytes: 0", "offset_bytes: 256"}) {
    v1::Operand& matrix = *grouped.add_weights();
    *matrix.mutable_values() =
        Tensor(plain_, absl::StrCat("dtype: DTYPE_E4M3 shape: 8 shape: 4 ", place));
    matrix.set_granularity(v1::SCALE_GRANULARITY_PER_ROW);
    *matrix.mutable_scales() = Tensor(plain_, absl::StrCat("dtype: DTYPE_F32 shape: 8 ", place));
  }
  const auto converted = Convert(op);
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto full = std::get<kernels::GroupedMatmulOp>(converted->ops[0]);
  ASSERT_EQ(full.table.size(), 2u);
  EXPECT_EQ(full.table[0].values.offset_bytes, 0);
  EXPECT_EQ(full.table[1].values.offset_bytes, 256);
  EXPECT_EQ(full.table[1].scales->offset_bytes, 256);
  EXPECT_EQ(full.b.values.shape, kernels::MakeDims({2, 8, 4}));
  EXPECT_EQ(full.b.values.strides, kernels::MakeDims({0, 4, 1}));
  EXPECT_EQ(full.b.scales->strides, kernels::MakeDims({0, 1}));
}

}  // namespace
}  // namespace gemmd::server
