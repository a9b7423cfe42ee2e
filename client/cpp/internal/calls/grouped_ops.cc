#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/op_wire.h"
#include "client/cpp/ops.h"

namespace gemmd::client {
OpList& OpList::Add(const GroupedMatmul& op) {
  for (size_t g = 0; g < op.weights.size() && status_.ok(); ++g) {
    absl::Status wrong = op.weights[g].values.status();
    wrong.Update(op.weights[g].scales.status());
    if (wrong.ok()) continue;
    status_ = absl::InvalidArgumentError(
        absl::StrCat("op ", size_, " (grouped_matmul): weights[", g, "]: ", wrong.message()));
  }
  if (!Check("grouped_matmul", {{"a", &op.a.values},
                                {"a.scales", &op.a.scales},
                                {"b", &op.b.values},
                                {"b.scales", &op.b.scales},
                                {"groups", &op.groups},
                                {"d", &op.d},
                                {"d_scales", &op.d_scales},
                                {"bias", &op.bias}})) {
    return *this;
  }
  using P = v1::GroupedMatmul;
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kGroupedMatmulFieldNumber);
  internal::AppendOperand(out, P::kAFieldNumber, op.a);
  if (op.weights.empty() || !op.b.values.empty()) {
    internal::AppendOperand(out, P::kBFieldNumber, op.b);
  }
  internal::AppendTensor(out, P::kGroupsFieldNumber, op.groups);
  wire::AppendInt(out, P::kLayoutFieldNumber, static_cast<int>(op.layout));
  wire::AppendInt(out, P::kAlignmentFieldNumber, op.alignment == 1 ? 0 : op.alignment);
  internal::AppendTensor(out, P::kDFieldNumber, op.d);
  internal::AppendTensor(out, P::kDScalesFieldNumber, op.d_scales);
  if (op.gate) internal::AppendGate(out, P::kGateFieldNumber, *op.gate);
  internal::AppendTensor(out, P::kBiasFieldNumber, op.bias);
  if (op.alpha != 1) wire::AppendFloat(out, P::kAlphaFieldNumber, op.alpha);
  wire::AppendInt(out, P::kActivationFieldNumber, static_cast<int>(op.activation));
  if (!op.kernel.empty()) wire::AppendBytes(out, P::kKernelFieldNumber, op.kernel);
  wire::AppendInt(out, P::kExpectedRowsFieldNumber, op.expected_rows);
  for (const Operand& matrix : op.weights) {
    internal::AppendOperand(out, P::kWeightsFieldNumber, matrix);
  }
  return *this;
}

OpList& OpList::Add(const KGroupedMatmul& op) {
  if (!Check("k_grouped_matmul", {{"a", &op.a.values},
                                  {"a.scales", &op.a.scales},
                                  {"b", &op.b.values},
                                  {"b.scales", &op.b.scales},
                                  {"groups", &op.groups},
                                  {"d", &op.d},
                                  {"c", &op.c}})) {
    return *this;
  }
  using P = v1::KGroupedMatmul;
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kKGroupedMatmulFieldNumber);
  internal::AppendOperand(out, P::kAFieldNumber, op.a);
  internal::AppendOperand(out, P::kBFieldNumber, op.b);
  internal::AppendTensor(out, P::kGroupsFieldNumber, op.groups);
  wire::AppendInt(out, P::kLayoutFieldNumber, static_cast<int>(op.layout));
  wire::AppendInt(out, P::kAlignmentFieldNumber, op.alignment == 1 ? 0 : op.alignment);
  internal::AppendTensor(out, P::kDFieldNumber, op.d);
  internal::AppendTensor(out, P::kCFieldNumber, op.c);
  if (op.alpha != 1) wire::AppendFloat(out, P::kAlphaFieldNumber, op.alpha);
  if (op.beta != 0) wire::AppendFloat(out, P::kBetaFieldNumber, op.beta);
  if (!op.kernel.empty()) wire::AppendBytes(out, P::kKernelFieldNumber, op.kernel);
  return *this;
}

OpList& OpList::Add(const RouteRows& op) {
  if (!Check("route", {{"ids", &op.ids},
                       {"offsets", &op.offsets},
                       {"rows", &op.rows},
                       {"positions", &op.positions}})) {
    return *this;
  }
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kRouteFieldNumber);
  internal::AppendTensor(out, v1::Route::kIdsFieldNumber, op.ids);
  internal::AppendTensor(out, v1::Route::kOffsetsFieldNumber, op.offsets);
  internal::AppendTensor(out, v1::Route::kRowsFieldNumber, op.rows);
  internal::AppendTensor(out, v1::Route::kPositionsFieldNumber, op.positions);
  return *this;
}

OpList& OpList::Add(const Combine& op) {
  if (!Check("combine", {{"src", &op.src},
                         {"positions", &op.positions},
                         {"weights", &op.weights},
                         {"dst", &op.dst}})) {
    return *this;
  }
  std::string& out = wire_.ForWriting();
  wire::Nested list(out, internal::kOps);
  wire::Nested nested(out, v1::Op::kCombineFieldNumber);
  internal::AppendTensor(out, v1::Combine::kSrcFieldNumber, op.src);
  internal::AppendTensor(out, v1::Combine::kPositionsFieldNumber, op.positions);
  internal::AppendTensor(out, v1::Combine::kWeightsFieldNumber, op.weights);
  internal::AppendTensor(out, v1::Combine::kDstFieldNumber, op.dst);
  return *this;
}

}  // namespace gemmd::client
