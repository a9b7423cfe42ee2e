#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

// Two experts of a group are as many as the sum of two asks for.
constexpr int64_t kSummed = 2;

absl::Status CheckEnums(const ChooseOp& op) {
  if (static_cast<int>(op.scores) >= kRouterScores) {
    return InvalidArgumentError(StrCat("scores number ", static_cast<int>(op.scores),
                                       " does not exist; use one of softmax, sigmoid"));
  }
  if (static_cast<int>(op.group_score) < kGroupScores) return absl::OkStatus();
  return InvalidArgumentError(StrCat("group_score number ", static_cast<int>(op.group_score),
                                     " does not exist; use one of max, top2_sum"));
}

absl::Status CheckExtents(const ChooseOp& op) {
  const int64_t experts = op.logits.shape[1];
  const int64_t top_k = op.experts.shape[1];
  if (experts < 1 || experts > kMaxGroups) {
    return InvalidArgumentError(StrCat("logits ", ToString(op.logits.shape), " are those of ",
                                       experts, " experts, outside 1 to ", kMaxGroups,
                                       "; give them one column an expert"));
  }
  const int64_t most = std::min(experts, kMaxTopK);
  if (top_k >= 1 && top_k <= most) return absl::OkStatus();
  return InvalidArgumentError(StrCat("top_k=", top_k, " of experts ", ToString(op.experts.shape),
                                     " is outside 1 to ", most, ", of logits ",
                                     ToString(op.logits.shape), "; reshape experts and weights"));
}

absl::Status CheckGroups(const ChooseOp& op) {
  const int64_t experts = op.logits.shape[1];
  const int64_t top_k = op.experts.shape[1];
  if (op.groups < 1 || experts % op.groups != 0) {
    return InvalidArgumentError(StrCat("groups=", op.groups, " does not divide the ", experts,
                                       " experts of logits; use groups of one size, or 1"));
  }
  if (op.top_groups < 1 || op.top_groups > op.groups) {
    return InvalidArgumentError(StrCat("top_groups=", op.top_groups, " is outside 1 to groups=",
                                       op.groups, "; use as many groups as may be chosen from"));
  }
  if (op.groups == 1) return absl::OkStatus();
  const int64_t each = experts / op.groups;
  if (op.group_score == GroupScore::kTop2Sum && each < kSummed) {
    return InvalidArgumentError(StrCat("group_score top2_sum needs groups of ", kSummed,
                                       " experts, but groups=", op.groups, " of ", experts,
                                       " experts have ", each, "; use max"));
  }
  if (op.top_groups * each >= top_k) return absl::OkStatus();
  return InvalidArgumentError(StrCat("top_groups=", op.top_groups, " groups of ", each,
                                     " have fewer experts than top_k=", top_k,
                                     "; use more of them, or fewer experts a token"));
}

}  // namespace

absl::Status CheckOp(const ChooseOp& op, absl::Span<const SlotInfo> slots) {
  View logits{"logits", &op.logits, Access::kRead, {}};
  View bias{"bias", nullptr, Access::kRead, {}};
  View experts{"experts", &op.experts, Access::kWrite, {}};
  View weights{"weights", &op.weights, Access::kWrite, {}};
  for (View* view : {&logits, &experts, &weights}) {
    GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots));
  }
  GEMMD_RETURN_IF_ERROR(CheckEnums(op));
  GEMMD_RETURN_IF_ERROR(CheckDType(logits, kFloats));
  GEMMD_RETURN_IF_ERROR(CheckIndex(experts));
  GEMMD_RETURN_IF_ERROR(CheckDType(weights, {DType::kF32}));
  GEMMD_RETURN_IF_ERROR(CheckRank(logits, 2, "2 dimensions, [tokens, experts]"));
  GEMMD_RETURN_IF_ERROR(CheckRank(experts, 2, "2 dimensions, [tokens, top_k]"));
  GEMMD_RETURN_IF_ERROR(CheckExtents(op));
  GEMMD_RETURN_IF_ERROR(CheckShape(experts, MakeDims({op.logits.shape[0], op.experts.shape[1]}),
                                   "the tokens of logits"));
  GEMMD_RETURN_IF_ERROR(CheckSameShape(weights, experts));
  if (op.bias) {
    bias.tensor = &*op.bias;
    GEMMD_RETURN_IF_ERROR(CheckTensor(bias, slots));
    GEMMD_RETURN_IF_ERROR(CheckDType(bias, {DType::kF32}));
    GEMMD_RETURN_IF_ERROR(
        CheckShape(bias, MakeDims({op.logits.shape[1]}), "the experts of logits"));
  }
  if (!std::isfinite(op.scale) || op.scale <= 0) {
    return InvalidArgumentError(
        StrCat("scale=", op.scale, " is not a finite number above 0; use 1"));
  }
  GEMMD_RETURN_IF_ERROR(CheckGroups(op));
  for (const View& written : {experts, weights}) {
    GEMMD_RETURN_IF_ERROR(CheckApart(written, logits));
    if (bias.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(written, bias));
  }
  return CheckApart(experts, weights);
}

}  // namespace gemmd::kernels::validate
