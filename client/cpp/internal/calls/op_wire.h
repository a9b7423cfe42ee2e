// How an op's tensors go on the wire. For ops.cc and grouped_ops.cc.

#ifndef GEMMD_CLIENT_CPP_INTERNAL_CALLS_OP_WIRE_H_
#define GEMMD_CLIENT_CPP_INTERNAL_CALLS_OP_WIRE_H_

#include <string>

#include "client/cpp/ops.h"
#include "gemmd/v1/compute_service.pb.h"
#include "gemmd/v1/types.pb.h"
#include "gemmd/v1/wire.h"

namespace gemmd::client::internal {

constexpr int kOps = v1::ExecuteRequest::kOpsFieldNumber;
static_assert(kOps == v1::Batch::kOpsFieldNumber && kOps == v1::CreatePlanRequest::kOpsFieldNumber,
              "one encoding serves all three requests");

inline void AppendDims(std::string& out, int field, absl::Span<const int64_t> dims) {
  wire::Nested packed(out, field);
  for (int64_t dim : dims) wire::AppendVarint(out, static_cast<uint64_t>(dim));
}

inline void AppendTensor(std::string& out, int field, const Tensor& tensor) {
  if (tensor.empty()) return;
  wire::Nested nested(out, field);
  wire::AppendBytes(out, v1::Tensor::kBufferIdFieldNumber, tensor.buffer().bytes());
  wire::AppendInt(out, v1::Tensor::kOffsetBytesFieldNumber, tensor.offset_bytes());
  wire::AppendInt(out, v1::Tensor::kDtypeFieldNumber, static_cast<int>(tensor.dtype()));
  AppendDims(out, v1::Tensor::kShapeFieldNumber, tensor.shape());
  if (!tensor.dense()) AppendDims(out, v1::Tensor::kStridesFieldNumber, tensor.strides());
}

inline void AppendOperand(std::string& out, int field, const Operand& operand) {
  wire::Nested nested(out, field);
  AppendTensor(out, v1::Operand::kValuesFieldNumber, operand.values);
  wire::AppendInt(out, v1::Operand::kGranularityFieldNumber, static_cast<int>(operand.granularity));
  AppendTensor(out, v1::Operand::kScalesFieldNumber, operand.scales);
}

inline void AppendGate(std::string& out, int field, const Gate& gate) {
  wire::Nested nested(out, field);
  wire::AppendInt(out, v1::Gate::kActivationFieldNumber, static_cast<int>(gate.activation));
  wire::AppendInt(out, v1::Gate::kPeriodFieldNumber, gate.period);
  if (gate.alpha != 1) wire::AppendFloat(out, v1::Gate::kAlphaFieldNumber, gate.alpha);
  if (gate.limit != 0) wire::AppendFloat(out, v1::Gate::kLimitFieldNumber, gate.limit);
  if (gate.up_offset != 0) wire::AppendFloat(out, v1::Gate::kUpOffsetFieldNumber, gate.up_offset);
}

}  // namespace gemmd::client::internal

#endif  // GEMMD_CLIENT_CPP_INTERNAL_CALLS_OP_WIRE_H_
