// Ops from the wire, converted in a session that has a typed buffer and a plain one.

#pragma once

#include <memory>
#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "server/service/wire/convert.h"
#include "tests/server/engine/state_fixture.h"

namespace gemmd::server {

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

}  // namespace gemmd::server
