#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

#define GEMMD_RETURN_IF_ERROR(expr)                 \
  do {                                              \
    if (absl::Status s = (expr); !s.ok()) return s; \
  } while (false)

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

constexpr DType kOperands[] = {DType::kF32,  DType::kBF16, DType::kF16,
                               DType::kE4M3, DType::kE5M2, DType::kI8};
constexpr DType kResults[] = {DType::kF32, DType::kBF16, DType::kF16};

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
  absl::Status CheckMatrix(const View& view, const char* wanted) const {
    if (view.tensor->shape.rank == 2) return absl::OkStatus();
    return InvalidArgumentError(StrCat(view.name, " has shape ", ToString(view.tensor->shape),
                                       "; give it 2 dimensions, ", wanted));
  }

  absl::Status CheckOperand(View& view, const Operand& operand, View& scales) {
    GEMMD_RETURN_IF_ERROR(CheckDType(view, kOperands));
    if (operand.granularity == ScaleGranularity::kBlock128x128) {
      return InvalidArgumentError(StrCat(
          view.name, " has scales of 128x128; rows of a gradient have their own, use 1x128"));
    }
    return CheckScales(view, operand.granularity, operand.scales, scales, slots_);
  }

  absl::Status CheckOperands() {
    for (View* view : {&a_, &b_, &groups_, &d_}) GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots_));
    GEMMD_RETURN_IF_ERROR(CheckMatrix(a_, "[m, k] with the groups' columns behind one another"));
    GEMMD_RETURN_IF_ERROR(CheckMatrix(b_, "[n, k] with the groups' columns behind one another"));
    GEMMD_RETURN_IF_ERROR(CheckOperand(a_, op_.a, a_scales_));
    GEMMD_RETURN_IF_ERROR(CheckOperand(b_, op_.b, b_scales_));
    if (!Multiply(op_.a.values.dtype, op_.b.values.dtype)) {
      return InvalidArgumentError(StrCat("a is ", Text(Name(op_.a.values.dtype)), " but b is ",
                                         Text(Name(op_.b.values.dtype)), "; convert one of them"));
    }
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
    if (op_.alignment >= 1 && op_.alignment <= (1 << 20) && (ends || op_.alignment == 1)) {
      return absl::OkStatus();
    }
    return InvalidArgumentError(
        StrCat("alignment=", op_.alignment, " is not ",
               ends ? "1 to 1048576; give the columns that groups start at multiples of"
                    : "1; it goes with layout ends alone"));
  }

  absl::Status CheckResult() {
    GEMMD_RETURN_IF_ERROR(CheckDType(d_, kResults));
    GEMMD_RETURN_IF_ERROR(
        CheckShape(d_, MakeDims({op_.d.shape[0], op_.a.values.shape[0], op_.b.values.shape[0]}),
                   "a . b^T of each group"));
    if (!std::isfinite(op_.alpha) || op_.alpha == 0) {
      return InvalidArgumentError(
          StrCat("alpha=", op_.alpha, " is not a finite number other than 0; use 1"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckC() {
    if (!std::isfinite(op_.beta)) {
      return InvalidArgumentError(StrCat("beta=", op_.beta, " is not finite; use 0 or 1"));
    }
    if (!op_.c) {
      if (op_.beta == 0) return absl::OkStatus();
      return InvalidArgumentError(
          StrCat("beta=", op_.beta, " but there is no c; add c or set beta to 0"));
    }
    View c{"c", &*op_.c, Access::kRead, {}};
    GEMMD_RETURN_IF_ERROR(CheckTensor(c, slots_));
    GEMMD_RETURN_IF_ERROR(CheckSameShape(c, d_));
    GEMMD_RETURN_IF_ERROR(CheckDType(c, {op_.d.dtype}));
    const bool in_place = op_.c->slot == op_.d.slot && op_.c->offset_bytes == op_.d.offset_bytes &&
                          op_.c->strides == op_.d.strides;
    return in_place ? absl::OkStatus() : CheckApart(d_, c);
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

absl::Status CheckKGroupedMatmul(const KGroupedMatmulOp& op, absl::Span<const SlotInfo> slots) {
  return KGroupedCheck(op, slots).Run();
}

}  // namespace gemmd::kernels::validate
