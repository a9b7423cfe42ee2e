#include "absl/strings/str_cat.h"
#include "client/cpp/internal/calls/op_wire.h"
#include "client/cpp/ops.h"

namespace gemmd::client {

OpList& OpList::Add(const GroupedMatmul& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kGroupedMatmulFieldNumber);
  using P = v1::GroupedMatmul;
  out.Add(P::kAFieldNumber, "a", op.a);
  if (op.weights.empty() || !op.b.values.empty()) out.Add(P::kBFieldNumber, "b", op.b);
  out.Add(P::kGroupsFieldNumber, "groups", op.groups);
  out.Add(P::kLayoutFieldNumber, static_cast<int64_t>(op.layout));
  out.Add(P::kAlignmentFieldNumber, op.alignment, 1);
  out.Add(P::kDFieldNumber, "d", op.d);
  out.Add(P::kDScalesFieldNumber, "d_scales", op.d_scales);
  out.Add(P::kGateFieldNumber, op.gate);
  out.Add(P::kBiasFieldNumber, "bias", op.bias);
  out.Add(P::kAlphaFieldNumber, op.alpha, 1);
  out.Add(P::kActivationFieldNumber, static_cast<int64_t>(op.activation));
  out.Add(P::kKernelFieldNumber, op.kernel);
  out.Add(P::kExpectedRowsFieldNumber, op.expected_rows);
  for (size_t g = 0; g < op.weights.size(); ++g) {
    out.Add(P::kWeightsFieldNumber, absl::StrCat("weights[", g, "]").c_str(), op.weights[g]);
  }
  out.End(Check("grouped_matmul", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const KGroupedMatmul& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kKGroupedMatmulFieldNumber);
  using P = v1::KGroupedMatmul;
  out.Add(P::kAFieldNumber, "a", op.a);
  out.Add(P::kBFieldNumber, "b", op.b);
  out.Add(P::kGroupsFieldNumber, "groups", op.groups);
  out.Add(P::kLayoutFieldNumber, static_cast<int64_t>(op.layout));
  out.Add(P::kAlignmentFieldNumber, op.alignment, 1);
  out.Add(P::kDFieldNumber, "d", op.d);
  out.Add(P::kCFieldNumber, "c", op.c);
  out.Add(P::kAlphaFieldNumber, op.alpha, 1);
  out.Add(P::kBetaFieldNumber, op.beta);
  out.Add(P::kKernelFieldNumber, op.kernel);
  out.End(Check("k_grouped_matmul", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const ChooseExperts& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kChooseFieldNumber);
  using P = v1::Choose;
  out.Add(P::kLogitsFieldNumber, "logits", op.logits);
  out.Add(P::kBiasFieldNumber, "bias", op.bias);
  out.Add(P::kExpertsFieldNumber, "experts", op.experts);
  out.Add(P::kWeightsFieldNumber, "weights", op.weights);
  out.Add(P::kScoresFieldNumber, static_cast<int64_t>(op.scores));
  out.Add(P::kRenormalizeFieldNumber, int64_t{op.renormalize});
  out.Add(P::kScaleFieldNumber, op.scale, 1);
  out.Add(P::kGroupsFieldNumber, op.groups, 1);
  out.Add(P::kTopGroupsFieldNumber, op.top_groups, 1);
  out.Add(P::kGroupScoreFieldNumber, static_cast<int64_t>(op.group_score));
  out.End(Check("choose", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const RouteRows& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kRouteFieldNumber);
  using P = v1::Route;
  out.Add(P::kIdsFieldNumber, "ids", op.ids);
  out.Add(P::kOffsetsFieldNumber, "offsets", op.offsets);
  out.Add(P::kRowsFieldNumber, "rows", op.rows);
  out.Add(P::kPositionsFieldNumber, "positions", op.positions);
  out.End(Check("route", {out.checked()}));
  return *this;
}

OpList& OpList::Add(const Combine& op) {
  internal::OpWriter out(wire_.ForWriting(), v1::Op::kCombineFieldNumber);
  using P = v1::Combine;
  out.Add(P::kSrcFieldNumber, "src", op.src);
  out.Add(P::kPositionsFieldNumber, "positions", op.positions);
  out.Add(P::kWeightsFieldNumber, "weights", op.weights);
  out.Add(P::kDstFieldNumber, "dst", op.dst);
  out.End(Check("combine", {out.checked()}));
  return *this;
}

}  // namespace gemmd::client
