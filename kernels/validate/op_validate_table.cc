// Rules of a grouped matmul's table: matrices that lie apart and are alike in all else.

#include "absl/strings/str_cat.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

bool SameTensor(const TensorRef& x, const TensorRef& y) {
  return x.slot == y.slot && x.offset_bytes == y.offset_bytes && x.dtype == y.dtype &&
         x.shape == y.shape && x.strides == y.strides;
}

bool SameOperand(const Operand& x, const Operand& y) {
  return x.granularity == y.granularity && SameTensor(x.values, y.values) &&
         x.scales.has_value() == y.scales.has_value() &&
         (!x.scales || SameTensor(*x.scales, *y.scales));
}

// One program serves every table that is bound to it, so that all but the place is said once.
absl::Status CheckAlike(const View& view, const View& first) {
  const TensorRef& one = *view.tensor;
  const TensorRef& other = *first.tensor;
  if (one.dtype != other.dtype) {
    return InvalidArgumentError(StrCat(view.name, " is ", Text(Name(one.dtype)), " but ",
                                       first.name, " is ", Text(Name(other.dtype)),
                                       "; convert one of them"));
  }
  if (one.shape != other.shape) {
    return InvalidArgumentError(StrCat(view.name, " has shape ", ToString(one.shape), " but ",
                                       first.name, " ", ToString(other.shape),
                                       "; give matrices of one shape"));
  }
  if (one.strides == other.strides) return absl::OkStatus();
  return InvalidArgumentError(StrCat(view.name, " has strides ", ToString(one.strides), " but ",
                                     first.name, " ", ToString(other.strides),
                                     "; lay them out alike, or copy one"));
}

}  // namespace

absl::Status CheckTable(const GroupedMatmulOp& op, absl::Span<const SlotInfo> slots,
                        TableViews& views) {
  const auto groups = static_cast<int64_t>(op.table.size());
  if (groups > kMaxGroups) {
    return InvalidArgumentError(StrCat("weights has ", groups, " matrices, limit ", kMaxGroups,
                                       "; multiply them in several ops"));
  }
  for (int64_t g = 0; g < groups; ++g) {
    const Operand& matrix = op.table[g];
    View values{views.names.emplace_back(StrCat("weights[", g, "]")), &matrix.values};
    if (absl::Status status = CheckTensor(values, slots); !status.ok()) return status;
    if (matrix.values.shape.rank != 2) {
      return InvalidArgumentError(StrCat(values.name, " has shape ", ToString(matrix.values.shape),
                                         "; give it 2 dimensions, [n, k]"));
    }
    if (matrix.granularity != op.table[0].granularity) {
      return InvalidArgumentError(
          StrCat(values.name, " has scales of ", Text(Name(matrix.granularity)), " but ",
                 views.names[0], " of ", Text(Name(op.table[0].granularity)), "; use one of them"));
    }
    View scales{views.names.emplace_back(StrCat("weights[", g, "].scales"))};
    if (absl::Status status = CheckScales(values, matrix.granularity, matrix.scales, scales, slots);
        !status.ok()) {
      return status;
    }
    if (g > 0) {
      if (absl::Status status = CheckAlike(values, views.read[0]); !status.ok()) return status;
      if (scales.tensor != nullptr) {
        if (absl::Status status = CheckAlike(scales, views.read[1]); !status.ok()) return status;
      }
    }
    views.read.push_back(values);
    if (scales.tensor != nullptr) views.read.push_back(scales);
  }
  if (SameOperand(op.b, StackOf(op.table[0], groups))) return absl::OkStatus();
  return InvalidArgumentError("b is not the stack of weights[0]; give either b or weights");
}

}  // namespace gemmd::kernels::validate
