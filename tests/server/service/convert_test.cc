#include "server/service/wire/convert.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/engine/reason.h"
#include "tests/server/service/convert_fixture.h"

namespace gemmd::server {
namespace {

using ::testing::HasSubstr;

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
