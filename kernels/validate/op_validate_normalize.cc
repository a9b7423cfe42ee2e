#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

// A weight or a bias: one number a column.
absl::Status CheckVector(View& view, const std::optional<TensorRef>& vector, int64_t columns,
                         absl::Span<const SlotInfo> slots) {
  if (!vector) return absl::OkStatus();
  view.tensor = &*vector;
  GEMMD_RETURN_IF_ERROR(CheckTensor(view, slots));
  GEMMD_RETURN_IF_ERROR(CheckDType(view, {DType::kF32}));
  return CheckShape(view, MakeDims({columns}), "the columns of src");
}

bool IsSame(const TensorRef& one, const TensorRef& other) {
  return one.slot == other.slot && one.offset_bytes == other.offset_bytes &&
         one.strides == other.strides;
}

// The addend, and the sum that may be it or src.
absl::Status CheckSum(const NormalizeOp& op, const View& src, View& addend, View& sum,
                      absl::Span<const SlotInfo> slots) {
  if (op.sum && !op.addend) {
    return InvalidArgumentError("a sum is given but no addend; give both, or copy src");
  }
  for (auto [view, given] : {std::pair(&addend, &op.addend), std::pair(&sum, &op.sum)}) {
    if (!*given) continue;
    view->tensor = &**given;
    GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots));
    GEMMD_RETURN_IF_ERROR(CheckDType(*view, {op.src.dtype}));
    GEMMD_RETURN_IF_ERROR(CheckSameShape(*view, src));
  }
  if (!op.sum) return absl::OkStatus();
  if (!IsSame(*op.sum, op.src)) GEMMD_RETURN_IF_ERROR(CheckApart(sum, src));
  if (!IsSame(*op.sum, *op.addend)) GEMMD_RETURN_IF_ERROR(CheckApart(sum, addend));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOp(const NormalizeOp& op, absl::Span<const SlotInfo> slots) {
  View src{"src", &op.src, Access::kRead, {}};
  View dst{"dst", &op.dst, Access::kWrite, {}};
  View addend{"addend", nullptr, Access::kRead, {}};
  View sum{"sum", nullptr, Access::kWrite, {}};
  View weight{"weight", nullptr, Access::kRead, {}};
  View bias{"bias", nullptr, Access::kRead, {}};
  View scales{"scales", nullptr, Access::kWrite, {}};
  for (View* view : {&src, &dst}) GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots));
  GEMMD_RETURN_IF_ERROR(CheckDType(src, kFloats));
  GEMMD_RETURN_IF_ERROR(CheckDType(dst, kGatedResults));
  const Dims& shape = op.src.shape;
  if (shape.rank < 2) {
    return InvalidArgumentError(StrCat("src has shape ", ToString(shape),
                                       "; give it 2 dimensions, or 3 with a leading batch"));
  }
  GEMMD_RETURN_IF_ERROR(CheckSameShape(dst, src));
  GEMMD_RETURN_IF_ERROR(CheckSum(op, src, addend, sum, slots));
  GEMMD_RETURN_IF_ERROR(CheckVector(weight, op.weight, shape[shape.rank - 1], slots));
  GEMMD_RETURN_IF_ERROR(CheckVector(bias, op.bias, shape[shape.rank - 1], slots));
  if (!std::isfinite(op.epsilon) || op.epsilon < 0) {
    return InvalidArgumentError(StrCat("epsilon=", op.epsilon,
                                       " is not a finite number of 0 and more; models have 1e-12 "
                                       "to 1e-5"));
  }
  GEMMD_RETURN_IF_ERROR(CheckResultScales(op.dst, op.scales, slots, scales));
  for (const View& written : {dst, scales, sum}) {
    if (written.tensor == nullptr) continue;
    for (const View& read : {src, addend, weight, bias}) {
      const bool is_summed = read.name == src.name || read.name == addend.name;
      if (read.tensor == nullptr || (written.name == sum.name && is_summed)) continue;
      GEMMD_RETURN_IF_ERROR(CheckApart(written, read));
    }
  }
  if (scales.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(dst, scales));
  if (sum.tensor == nullptr) return absl::OkStatus();
  if (scales.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(sum, scales));
  return CheckApart(dst, sum);
}

}  // namespace gemmd::kernels::validate
