#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

// Column numbers are int32.
constexpr int64_t kMaxColumns = std::numeric_limits<int32_t>::max();

// Of one KGroupedMatmulOp.
class KGroupedCheck {
 public:
  KGroupedCheck(const KGroupedMatmulOp& op, absl::Span<const SlotInfo> slots)
      : op_(op), slots_(slots) {}

  absl::Status Run() {
    GEMMD_RETURN_IF_ERROR(CheckOperands());
    GEMMD_RETURN_IF_ERROR(CheckGroups());
    GEMMD_RETURN_IF_ERROR(CheckResult());
    for (const View* read : {&a_, &b_, &groups_, &a_scales_, &b_scales_}) {
      if (read->tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(d_, *read));
    }
    return CheckC();
  }

 private:
  absl::Status CheckOperand(View& view, const Operand& operand, View& scales) {
    if (operand.granularity == ScaleGranularity::kBlock128x128) {
      return InvalidArgumentError(StrCat(
          view.name, " has scales of 128x128; rows of a gradient have their own, use 1x128"));
    }
    return CheckScales(view, operand.granularity, operand.scales, scales, slots_);
  }

  absl::Status CheckOperands() {
    for (View* view : {&a_, &b_, &groups_, &d_}) GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots_));
    GEMMD_RETURN_IF_ERROR(
        CheckRank(a_, 2, "2 dimensions, [m, k] with the groups' columns behind one another"));
    GEMMD_RETURN_IF_ERROR(
        CheckRank(b_, 2, "2 dimensions, [n, k] with the groups' columns behind one another"));
    GEMMD_RETURN_IF_ERROR(CheckFactors(a_, b_));
    GEMMD_RETURN_IF_ERROR(CheckOperand(a_, op_.a, a_scales_));
    GEMMD_RETURN_IF_ERROR(CheckOperand(b_, op_.b, b_scales_));
    const int64_t k = op_.a.values.shape[1];
    if (op_.b.values.shape[1] != k) {
      return InvalidArgumentError(StrCat("k=", k, " of a ", ToString(op_.a.values.shape),
                                         " is not k=", op_.b.values.shape[1], " of b ",
                                         ToString(op_.b.values.shape), "; give b as [n, k]"));
    }
    if (k > kMaxColumns) {
      return InvalidArgumentError(
          StrCat("k=", k, " is more than ", kMaxColumns, " columns; split the op"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckGroups() {
    if (op_.d.shape.rank != 3 || op_.d.shape[0] < 1 || op_.d.shape[0] > kMaxGroups) {
      return InvalidArgumentError(StrCat("d has shape ", ToString(op_.d.shape),
                                         "; give it [groups, m, n] with 1 to ", kMaxGroups,
                                         " groups"));
    }
    const bool ends = op_.layout == GroupLayout::kEnds;
    if (!ends && op_.layout != GroupLayout::kOffsets) {
      return InvalidArgumentError(
          StrCat("layout ", Text(Name(op_.layout)),
                 " tells rows, and these groups are of columns; use offsets or ends"));
    }
    GEMMD_RETURN_IF_ERROR(CheckIndex(groups_));
    const int64_t groups = op_.d.shape[0];
    GEMMD_RETURN_IF_ERROR(CheckShape(groups_, MakeDims({ends ? groups : groups + 1}),
                                     StrCat("layout ", Text(Name(op_.layout)))));
    return CheckAlignment(op_.layout, op_.alignment, "columns");
  }

  absl::Status CheckResult() {
    GEMMD_RETURN_IF_ERROR(CheckDType(d_, kFloats));
    GEMMD_RETURN_IF_ERROR(
        CheckShape(d_, MakeDims({op_.d.shape[0], op_.a.values.shape[0], op_.b.values.shape[0]}),
                   "a . b^T of each group"));
    return CheckGroupedAlpha(op_.alpha);
  }

  absl::Status CheckC() {
    if (!std::isfinite(op_.beta)) {
      return InvalidArgumentError(StrCat("beta=", op_.beta, " is not finite; use 0 or 1"));
    }
    return CheckAddend(op_.c, op_.beta, d_, slots_);
  }

  const KGroupedMatmulOp& op_;
  const absl::Span<const SlotInfo> slots_;
  View a_{"a", &op_.a.values, Access::kRead, {}};
  View b_{"b", &op_.b.values, Access::kRead, {}};
  View groups_{"groups", &op_.groups, Access::kRead, {}};
  View d_{"d", &op_.d, Access::kWrite, {}};
  View a_scales_{"a.scales", nullptr, Access::kRead, {}};
  View b_scales_{"b.scales", nullptr, Access::kRead, {}};
};

}  // namespace

absl::Status CheckOp(const KGroupedMatmulOp& op, absl::Span<const SlotInfo> slots) {
  return KGroupedCheck(op, slots).Run();
}

}  // namespace gemmd::kernels::validate
