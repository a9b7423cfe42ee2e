#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

// Row numbers are int32.
constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

// Of one GroupedMatmulOp.
class GroupedCheck {
 public:
  GroupedCheck(const GroupedMatmulOp& op, absl::Span<const SlotInfo> slots)
      : op_(op), slots_(slots) {}

  absl::Status Run() {
    if (!op_.table.empty()) GEMMD_RETURN_IF_ERROR(CheckTable(op_, slots_, table_));
    GEMMD_RETURN_IF_ERROR(CheckOperands());
    GEMMD_RETURN_IF_ERROR(CheckGroups());
    GEMMD_RETURN_IF_ERROR(CheckNumbers());
    GEMMD_RETURN_IF_ERROR(CheckResult());
    GEMMD_RETURN_IF_ERROR(CheckBias());
    for (const View* read : {&a_, &b_, &groups_, &a_scales_, &b_scales_, &bias_}) {
      if (read->tensor == nullptr) continue;
      GEMMD_RETURN_IF_ERROR(CheckApart(d_, *read));
      if (d_scales_.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(d_scales_, *read));
    }
    for (const View& read : table_.read) {
      GEMMD_RETURN_IF_ERROR(CheckApart(d_, read));
      if (d_scales_.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(d_scales_, read));
    }
    return d_scales_.tensor == nullptr ? absl::OkStatus() : CheckApart(d_, d_scales_);
  }

 private:
  bool counts() const { return op_.layout == GroupLayout::kCounts; }
  int64_t groups() const { return op_.b.values.shape[0]; }
  int64_t n() const { return op_.b.values.shape[1]; }

  absl::Status CheckOperands() {
    if (static_cast<int>(op_.layout) >= kGroupLayouts) {
      return InvalidArgumentError(StrCat("layout number ", static_cast<int>(op_.layout),
                                         " does not exist; use one of offsets, counts, row_ids, "
                                         "ends"));
    }
    for (View* view : {&a_, &b_, &groups_, &d_}) GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots_));
    GEMMD_RETURN_IF_ERROR(
        CheckRank(a_, counts() ? 3 : 2,
                  counts() ? "3 dimensions, [groups, m_max, k]" : "2 dimensions, [m, k]"));
    GEMMD_RETURN_IF_ERROR(CheckRank(b_, 3, "3 dimensions, [groups, n, k]"));
    GEMMD_RETURN_IF_ERROR(CheckFactors(a_, b_));
    GEMMD_RETURN_IF_ERROR(CheckExtents());
    if (op_.a.granularity == ScaleGranularity::kBlock128x128) {
      return InvalidArgumentError(
          "a has scales of 128x128, which rows of several groups would share; use 1x128");
    }
    GEMMD_RETURN_IF_ERROR(CheckScales(a_, op_.a.granularity, op_.a.scales, a_scales_, slots_));
    return CheckScales(b_, op_.b.granularity, op_.b.scales, b_scales_, slots_);
  }

  absl::Status CheckExtents() const {
    const Dims& a = op_.a.values.shape;
    const Dims& b = op_.b.values.shape;
    if (groups() < 1 || groups() > kMaxGroups) {
      return InvalidArgumentError(StrCat("b ", ToString(b), " has ", groups(),
                                         " groups, outside 1 to ", kMaxGroups,
                                         "; multiply them in several ops"));
    }
    if (a[a.rank - 1] != b[2]) {
      return InvalidArgumentError(StrCat("k=", a[a.rank - 1], " of a ", ToString(a),
                                         " is not k=", b[2], " of b ", ToString(b),
                                         "; give b as [groups, n, k]"));
    }
    if (counts() && a[0] != groups()) {
      return InvalidArgumentError(StrCat("a ", ToString(a), " has ", a[0], " items but b ",
                                         ToString(b), " ", groups(), " groups; give one to each"));
    }
    const double rows = a.rank == 3 ? 1.0 * static_cast<double>(a[0]) * static_cast<double>(a[1])
                                    : static_cast<double>(a[0]);
    if (rows > kMaxRows) {
      return InvalidArgumentError(
          StrCat("a ", ToString(a), " has more than ", kMaxRows, " rows; split the op"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckGroups() {
    GEMMD_RETURN_IF_ERROR(CheckIndex(groups_));
    Dims expected = MakeDims({groups()});
    if (op_.layout == GroupLayout::kOffsets) expected = MakeDims({groups() + 1});
    if (op_.layout == GroupLayout::kRowIds) expected = MakeDims({op_.a.values.shape[0]});
    GEMMD_RETURN_IF_ERROR(CheckShape(groups_, expected, StrCat("layout ", Text(Name(op_.layout)))));
    return CheckAlignment(op_.layout, op_.alignment, "rows");
  }

  absl::Status CheckNumbers() const {
    GEMMD_RETURN_IF_ERROR(CheckGroupedAlpha(op_.alpha));
    GEMMD_RETURN_IF_ERROR(CheckActivation(op_.activation));
    if (op_.expected_rows < 0) {
      return InvalidArgumentError(
          StrCat("expected_rows=", op_.expected_rows, " is below 0; use 0 for all that a has"));
    }
    if (!op_.gate) return absl::OkStatus();
    GEMMD_RETURN_IF_ERROR(CheckGateNumbers(*op_.gate));
    if (op_.gate->alone) {
      return InvalidArgumentError(
          "the gate is alone, which a matmul has and groups do not; use `activation`, and Gated");
    }
    if (op_.activation != Activation::kNone) {
      return InvalidArgumentError(StrCat("activation ", Text(Name(op_.activation)),
                                         " is given beside a gate, which has its own; use one"));
    }
    if (n() % 2 != 0) {
      return InvalidArgumentError(StrCat("n=", n(), " of b ", ToString(op_.b.values.shape),
                                         " is odd; a gate takes n/2 of gate and n/2 of up"));
    }
    return CheckPeriod(op_.gate->period, n() / 2);
  }

  absl::Status CheckResult() {
    GEMMD_RETURN_IF_ERROR(op_.gate ? CheckDType(d_, kGatedResults) : CheckDType(d_, kFloats));
    Dims out = op_.a.values.shape;
    out[out.rank - 1] = op_.gate ? n() / 2 : n();
    GEMMD_RETURN_IF_ERROR(CheckShape(d_, out, op_.gate ? "gated a . b^T" : "a . b^T"));
    return CheckGateScales(d_, op_.d_scales, d_scales_, slots_);
  }

  absl::Status CheckBias() {
    if (!op_.bias) return absl::OkStatus();
    bias_.tensor = &*op_.bias;
    GEMMD_RETURN_IF_ERROR(CheckTensor(bias_, slots_));
    GEMMD_RETURN_IF_ERROR(CheckShape(bias_, MakeDims({groups(), n()}), "groups and n of b"));
    if (op_.d.dtype == DType::kE4M3) return CheckDType(bias_, {DType::kF32});
    return CheckDType(bias_, {DType::kF32, op_.d.dtype});
  }

  const GroupedMatmulOp& op_;
  const absl::Span<const SlotInfo> slots_;
  View a_{"a", &op_.a.values, Access::kRead, {}};
  View b_{"b", &op_.b.values, Access::kRead, {}};
  View groups_{"groups", &op_.groups, Access::kRead, {}};
  View d_{"d", &op_.d, Access::kWrite, {}};
  View a_scales_{"a.scales", nullptr, Access::kRead, {}};
  View b_scales_{"b.scales", nullptr, Access::kRead, {}};
  View d_scales_{"d_scales", nullptr, Access::kWrite, {}};
  View bias_{"bias", nullptr, Access::kRead, {}};
  TableViews table_;
};

}  // namespace

absl::Status CheckGroupedAlpha(float alpha) {
  if (std::isfinite(alpha) && alpha != 0) return absl::OkStatus();
  return InvalidArgumentError(
      StrCat("alpha=", alpha, " is not a finite number other than 0; use 1"));
}

absl::Status CheckAlignment(GroupLayout layout, int64_t alignment, absl::string_view what) {
  const bool ends = layout == GroupLayout::kEnds;
  if (alignment >= 1 && alignment <= (1 << 20) && (ends || alignment == 1)) return absl::OkStatus();
  if (!ends) {
    return InvalidArgumentError(
        StrCat("alignment=", alignment, " is not 1; it goes with layout ends alone"));
  }
  return InvalidArgumentError(StrCat("alignment=", alignment, " is not 1 to 1048576; give the ",
                                     what, " that groups start at multiples of"));
}

absl::Status CheckOp(const GroupedMatmulOp& op, absl::Span<const SlotInfo> slots) {
  return GroupedCheck(op, slots).Run();
}

absl::Status CheckOp(const RouteOp& op, absl::Span<const SlotInfo> slots) {
  View ids{"ids", &op.ids, Access::kRead, {}};
  View offsets{"offsets", &op.offsets, Access::kWrite, {}};
  View rows{"rows", &op.rows, Access::kWrite, {}};
  View positions{"positions", &op.positions, Access::kWrite, {}};
  for (View* view : {&ids, &offsets, &rows, &positions}) {
    GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots));
    GEMMD_RETURN_IF_ERROR(CheckIndex(*view));
  }
  GEMMD_RETURN_IF_ERROR(CheckRank(ids, 2, "2 dimensions, [tokens, top_k]"));
  GEMMD_RETURN_IF_ERROR(CheckSameShape(positions, ids));
  const int64_t choices = NumElements(op.ids.shape).value_or(0);
  if (choices > kMaxRows) {
    return InvalidArgumentError(
        StrCat("ids ", ToString(op.ids.shape), " are more than ", kMaxRows, "; split the op"));
  }
  GEMMD_RETURN_IF_ERROR(CheckShape(rows, MakeDims({choices}), "tokens * top_k of ids"));
  GEMMD_RETURN_IF_ERROR(CheckRank(offsets, 1, "1 dimension, [experts + 1]"));
  const int64_t experts = op.offsets.shape[0] - 1;
  if (experts < 1 || experts > kMaxGroups) {
    return InvalidArgumentError(StrCat("offsets ", ToString(op.offsets.shape), " are those of ",
                                       experts, " experts, outside 1 to ", kMaxGroups,
                                       "; give them experts + 1 elements"));
  }
  for (const View& view : {offsets, rows, positions}) {
    GEMMD_RETURN_IF_ERROR(CheckApart(view, ids));
  }
  GEMMD_RETURN_IF_ERROR(CheckApart(offsets, rows));
  GEMMD_RETURN_IF_ERROR(CheckApart(offsets, positions));
  return CheckApart(rows, positions);
}

absl::Status CheckOp(const CombineOp& op, absl::Span<const SlotInfo> slots) {
  View src{"src", &op.src, Access::kRead, {}};
  View positions{"positions", &op.positions, Access::kRead, {}};
  View weights{"weights", &op.weights, Access::kRead, {}};
  View dst{"dst", &op.dst, Access::kWrite, {}};
  for (View* view : {&src, &positions, &weights, &dst}) {
    GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots));
    GEMMD_RETURN_IF_ERROR(CheckRank(*view, 2, "2 dimensions"));
  }
  GEMMD_RETURN_IF_ERROR(CheckDType(src, kFloats));
  GEMMD_RETURN_IF_ERROR(CheckDType(dst, kFloats));
  GEMMD_RETURN_IF_ERROR(CheckIndex(positions));
  GEMMD_RETURN_IF_ERROR(CheckDType(weights, {DType::kF32}));
  GEMMD_RETURN_IF_ERROR(CheckSameShape(weights, positions));
  GEMMD_RETURN_IF_ERROR(CheckShape(dst, MakeDims({op.positions.shape[0], op.src.shape[1]}),
                                   "tokens of positions and columns of src"));
  if (op.src.shape[0] > kMaxRows) {
    return InvalidArgumentError(
        StrCat("src ", ToString(op.src.shape), " has more than ", kMaxRows, " rows; split the op"));
  }
  for (const View& view : {src, positions, weights}) GEMMD_RETURN_IF_ERROR(CheckApart(dst, view));
  return absl::OkStatus();
}

}  // namespace gemmd::kernels::validate
