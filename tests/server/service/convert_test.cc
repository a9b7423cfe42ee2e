#include "server/service/wire/convert.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

class ConvertTest : public StateTest {
 protected:
  ConvertTest() {
    session_ = Open(*red_);
    plain_ = AddBuffer(*session_);
    BufferSpec spec{.size_bytes = 64, .dtype = kernels::DType::kBF16};
    spec.shape = kernels::MakeDims({4, 8});
    typed_ = *session_->AddBuffer(
        {.buffer = *Buffer::Create(*red_, *state_->devices()[0], spec, clock_.Now())});
  }

  v1::Tensor Tensor(const Handle& handle, const std::string& text) {
    v1::Tensor tensor;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &tensor));
    tensor.set_buffer_id(ToBytes(handle));
    return tensor;
  }
  absl::StatusOr<ConvertedOps> Convert(const v1::Op& op) {
    SlotTable slots(*session_);
    google::protobuf::RepeatedPtrField<v1::Op> ops;
    *ops.Add() = op;
    return ConvertOps(ops, 10, slots);
  }
  absl::StatusOr<ConvertedOps> ConvertFill(const v1::Tensor& tensor) {
    v1::Op op;
    *op.mutable_fill()->mutable_dst() = tensor;
    return Convert(op);
  }
  std::string ErrorOf(const v1::Tensor& tensor) {
    return std::string(ConvertFill(tensor).status().message());
  }

  std::shared_ptr<Session> session_;
  Handle plain_, typed_;
};

// Explain is asked without memory: what it answers of has to be what Compile sees of dense tensors.
TEST(ConvertProblemTest, ExplainPosesTheProblemOfDenseTensors) {
  using kernels::DType;
  const auto dense = [](DType dtype, int64_t batch, int64_t rows, int64_t cols) {
    kernels::TensorRef tensor{.dtype = dtype};
    tensor.shape =
        batch > 1 ? kernels::MakeDims({batch, rows, cols}) : kernels::MakeDims({rows, cols});
    tensor.strides = kernels::RowMajorStrides(tensor.shape);
    return tensor;
  };
  for (int64_t m : {1, 3}) {
    for (int64_t n : {1, 2, 10, 64}) {
      for (int64_t k : {1, 6, 256}) {
        for (int64_t batch : {1, 5}) {
          for (int form = 0; form < 8; ++form) {
            const bool kn = (form & 1) != 0, gate = (form & 2) != 0, c = (form & 4) != 0;
            if (gate && (n == 1 || c)) continue;
            v1::MatmulProblem proto;
            proto.set_m(m);
            proto.set_n(n);
            proto.set_k(k);
            proto.set_batch(batch);
            proto.set_operand_dtype(v1::DTYPE_BF16);
            proto.set_output_dtype(v1::DTYPE_F32);
            proto.set_b_is_kn(kn);
            proto.set_has_c(c);
            proto.set_has_bias(c);
            if (gate) proto.mutable_gate();
            kernels::MatmulOp op;
            op.a.values = dense(DType::kBF16, batch, m, k);
            op.b.values = dense(DType::kBF16, batch, kn ? k : n, kn ? n : k);
            const int r = op.b.values.shape.rank;
            if (kn) {
              std::swap(op.b.values.shape[r - 1], op.b.values.shape[r - 2]);
              std::swap(op.b.values.strides[r - 1], op.b.values.strides[r - 2]);
            }
            op.d = dense(DType::kF32, batch, m, gate ? n / 2 : n);
            if (c) {
              op.c = op.d;
              op.beta = 1;
              op.bias = kernels::TensorRef{.dtype = DType::kF32,
                                           .shape = kernels::MakeDims({n}),
                                           .strides = kernels::MakeDims({1})};
            }
            if (gate) op.gate.emplace();
            const auto problem = server::Convert(proto);
            ASSERT_TRUE(problem.ok()) << problem.status();
            EXPECT_EQ(*problem, kernels::ProblemOf(op))
                << kernels::ToString(*problem) << ", batch " << batch << ", form " << form;
          }
        }
      }
    }
  }
}

TEST(ConvertProblemTest, AGateHasItsRules) {
  v1::MatmulProblem proto;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(m: 4 n: 512 k: 256 operand_dtype: DTYPE_E4M3 output_dtype: DTYPE_E4M3
         a_granularity: SCALE_GRANULARITY_BLOCK_1X128 b_granularity: SCALE_GRANULARITY_BLOCK_128X128
         gate { activation: ACTIVATION_SILU period: 128 })",
      &proto));
  const auto problem = server::Convert(proto);
  ASSERT_TRUE(problem.ok()) << problem.status();
  EXPECT_EQ(problem->gate_period, 128);
  EXPECT_EQ(problem->d_cols(), 256);
  EXPECT_EQ(problem->d.granularity, kernels::ScaleGranularity::kBlock1x128);
  const auto error = [&](auto change) {
    v1::MatmulProblem bad = proto;
    change(bad);
    return std::string(server::Convert(bad).status().message());
  };
  EXPECT_THAT(error([](v1::MatmulProblem& p) { p.set_n(513); }), HasSubstr("n=513 is odd"));
  EXPECT_THAT(error([](v1::MatmulProblem& p) { p.mutable_gate()->set_period(96); }),
              HasSubstr("period=96 does not divide n/2=256"));
  EXPECT_THAT(error([](v1::MatmulProblem& p) { p.mutable_gate()->set_period(-1); }),
              HasSubstr("period=-1"));
  EXPECT_THAT(error([](v1::MatmulProblem& p) { p.set_has_c(true); }),
              HasSubstr("has a gate and a C"));
  EXPECT_THAT(error([](v1::MatmulProblem& p) { p.mutable_gate()->set_alone(true); }),
              HasSubstr("period=128 is given of gates alone"));
  proto.mutable_gate()->clear_period();
  proto.mutable_gate()->set_alone(true);
  proto.set_n(513);
  const auto alone = server::Convert(proto);
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(alone->gate_alone);
  EXPECT_EQ(alone->d_cols(), 513);
  EXPECT_THAT(
      error([](v1::MatmulProblem& p) { p.mutable_gate()->set_activation(v1::Activation(77)); }),
      HasSubstr("gate.activation 77 is not known"));
  EXPECT_THAT(
      error([](v1::MatmulProblem& p) { p.clear_gate(); }),
      HasSubstr("output_dtype is e4m3; a matmul gives F32, BF16 or F16, and E4M3 with a gate"));
}

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

TEST_F(ConvertTest, ATypedBufferLendsItsTypeAndShape) {
  const auto converted = ConvertFill(Tensor(typed_, ""));
  ASSERT_TRUE(converted.ok()) << converted.status();
  const auto& dst = std::get<kernels::FillOp>(converted->ops[0]).dst;
  EXPECT_EQ(dst.dtype, kernels::DType::kBF16);
  EXPECT_EQ(dst.shape, kernels::MakeDims({4, 8}));
  EXPECT_EQ(dst.strides, kernels::MakeDims({8, 1}));
}

TEST_F(ConvertTest, AnUntypedBufferNeedsThemSpelledOut) {
  EXPECT_THAT(ErrorOf(Tensor(plain_, "")), HasSubstr("ops[0].fill.dst: dtype is unspecified"));
  EXPECT_THAT(ErrorOf(Tensor(plain_, "dtype: DTYPE_F32")), HasSubstr("shape is empty"));
}

TEST_F(ConvertTest, ViewsKeepOffsetShapeAndStrides) {
  const auto converted = ConvertFill(
      Tensor(plain_, "dtype: DTYPE_F32 offset_bytes: 16 shape: [2, 3] strides: [1, 2]"));
  ASSERT_TRUE(converted.ok());
  const auto& dst = std::get<kernels::FillOp>(converted->ops[0]).dst;
  EXPECT_EQ(dst.offset_bytes, 16);
  EXPECT_EQ(dst.strides, kernels::MakeDims({1, 2}));
}

TEST_F(ConvertTest, ErrorsNameTheField) {
  EXPECT_THAT(ErrorOf(Tensor(plain_, "dtype: DTYPE_F32 shape: [1, 1, 1, 1]")),
              HasSubstr("ops[0].fill.dst: shape has rank 4, limit 3"));
  EXPECT_THAT(ErrorOf(v1::Tensor()), HasSubstr("buffer_id has 0 bytes, not 16"));
  v1::Tensor unknown = Tensor(plain_, "shape: [1]");
  unknown.set_dtype(static_cast<v1::DType>(77));
  EXPECT_THAT(ErrorOf(unknown), HasSubstr("dtype 77 is not known"));
}

TEST_F(ConvertTest, AMissingTensorIsNamed) {
  v1::Op op;
  op.mutable_matmul();
  EXPECT_THAT(std::string(Convert(op).status().message()), HasSubstr("ops[0].matmul.a: missing"));
  EXPECT_THAT(std::string(Convert(v1::Op()).status().message()), HasSubstr("ops[0] has no kind"));
}

TEST_F(ConvertTest, AnUnknownBufferKeepsItsReason) {
  const auto status = ConvertFill(Tensor(NewHandle(), "dtype: DTYPE_F32 shape: [1]")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(status), "BUFFER_GONE");
}

TEST_F(ConvertTest, HostileShapesConvertWithoutHarmAndAreRefusedByValidation) {
  for (const char* shape : {"[9223372036854775807, 9223372036854775807, 2]", "[-1, 5]",
                            "[-9223372036854775808, -9223372036854775808]"}) {
    v1::Op op;
    *op.mutable_fill()->mutable_dst() =
        Tensor(plain_, std::string("dtype: DTYPE_F32 shape: ") + shape);
    SlotTable slots(*session_);
    google::protobuf::RepeatedPtrField<v1::Op> ops;
    *ops.Add() = op;
    auto converted = ConvertOps(ops, 10, slots);
    ASSERT_TRUE(converted.ok());
    auto use = state_->sessions().Use(*red_, ToBytes(session_->handle()));
    EXPECT_EQ(CompileRun(*std::move(use), converted->ops, slots, {}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << shape;
  }
}

TEST_F(ConvertTest, MatmulDefaultsAlphaToOneAndKeepsAnExplicitZero) {
  v1::Op op;
  auto* matmul = op.mutable_matmul();
  *matmul->mutable_a()->mutable_values() = Tensor(typed_, "");
  *matmul->mutable_b()->mutable_values() = Tensor(typed_, "");
  *matmul->mutable_d() = Tensor(plain_, "dtype: DTYPE_F32 shape: [4, 4]");
  EXPECT_EQ(std::get<kernels::MatmulOp>(Convert(op)->ops[0]).alpha, 1.0f);
  matmul->set_alpha(0);
  EXPECT_EQ(std::get<kernels::MatmulOp>(Convert(op)->ops[0]).alpha, 0.0f);
}

TEST_F(ConvertTest, ReadsAndWritesAreNumberedInOrder) {
  google::protobuf::RepeatedPtrField<v1::Op> ops;
  for (int i = 0; i < 2; ++i) {
    *ops.Add()->mutable_read()->mutable_src() = Tensor(typed_, "");
    auto* write = ops.Add()->mutable_write();
    *write->mutable_dst() = Tensor(typed_, "");
    write->set_data(std::string(3, 'x'));
  }
  SlotTable slots(*session_);
  const auto converted = ConvertOps(ops, 10, slots);
  ASSERT_TRUE(converted.ok());
  EXPECT_EQ(std::get<kernels::ReadOp>(converted->ops[2]).output, 1);
  EXPECT_EQ(std::get<kernels::WriteOp>(converted->ops[3]).input, 1);
  EXPECT_EQ(converted->inputs.size(), 2);
  EXPECT_EQ(ConvertOps(ops, 3, slots).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace gemmd::server
