#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

// src [batch?, rows, 2n], n if alone, dst [batch?, rows, n], and how gate and up share src's
// columns.
absl::Status CheckColumns(const GatedOp& op, const View& dst) {
  const Dims& src = op.src.shape;
  if (src.rank < 2) {
    return InvalidArgumentError(StrCat("src has shape ", ToString(src),
                                       "; give it 2 dimensions, or 3 with a leading batch"));
  }
  if (op.alone) return CheckShape(dst, src, "src, whose gates are alone");
  const int64_t columns = src[src.rank - 1];
  if (columns % 2 != 0) {
    return InvalidArgumentError(StrCat("src ", ToString(src), " has ", columns,
                                       " columns, an odd number; give it n of gate and n of up"));
  }
  Dims half = src;
  half[half.rank - 1] = columns / 2;
  if (absl::Status shape = CheckShape(dst, half, "half of src's columns"); !shape.ok()) {
    return shape;
  }
  return CheckPeriod(op.period, columns / 2);
}

}  // namespace

absl::Status CheckPeriod(int64_t period, int64_t n) {
  if (period == 0 || (period > 0 && n % period == 0)) return absl::OkStatus();
  return InvalidArgumentError(
      StrCat("period=", period, " does not divide n=", n,
             "; use 0 for two halves, 1 for alternating columns, or the length of the blocks"));
}

absl::Status CheckGateScales(const View& d, const std::optional<TensorRef>& d_scales, View& view,
                             absl::Span<const SlotInfo> slots) {
  if (d.tensor->dtype != DType::kE4M3) {
    if (!d_scales) return absl::OkStatus();
    return InvalidArgumentError(StrCat("d_scales are given but d is ", Text(Name(d.tensor->dtype)),
                                       "; drop them, or write e4m3"));
  }
  const Dims expected = ScaleShape(d.tensor->shape, ScaleGranularity::kBlock1x128);
  if (!d_scales) {
    return InvalidArgumentError(
        StrCat("d is e4m3 but there are no d_scales; add f32 ones of ", ToString(expected)));
  }
  view.tensor = &*d_scales;
  for (const absl::Status& status : {CheckTensor(view, slots), CheckDType(view, {DType::kF32})}) {
    if (!status.ok()) return status;
  }
  return CheckShape(view, expected, "granularity 1x128 of d");
}

absl::Status CheckGateNumbers(const Gate& op) {
  if (absl::Status activation = CheckActivation(op.activation); !activation.ok()) {
    return activation;
  }
  if (!std::isfinite(op.alpha) || op.alpha <= 0) {
    return InvalidArgumentError(
        StrCat("alpha=", op.alpha, " is not a finite number above 0; use 1 for plain silu"));
  }
  if (op.alpha != 1 && op.activation != Activation::kSilu) {
    return InvalidArgumentError(StrCat("alpha=", op.alpha, " does not go with ",
                                       Text(Name(op.activation)),
                                       "; leave it 1, or use silu, x * sigmoid(alpha * x)"));
  }
  if (!std::isfinite(op.limit) || op.limit < 0) {
    return InvalidArgumentError(
        StrCat("limit=", op.limit, " is not a finite number above 0; use 0 for no limit"));
  }
  if (op.alone && (op.period != 0 || op.up_offset != 0)) {
    return InvalidArgumentError(
        StrCat("period=", op.period, " and up_offset=", op.up_offset,
               " are given of gates alone, which have no ups; leave both 0"));
  }
  if (!std::isfinite(op.up_offset)) {
    return InvalidArgumentError(
        StrCat("up_offset=", op.up_offset, " is not finite; use a finite number"));
  }
  return absl::OkStatus();
}

absl::Status CheckResultScales(const TensorRef& dst, const std::optional<TensorRef>& scales,
                               absl::Span<const SlotInfo> slots, View& view) {
  if (dst.dtype != DType::kE4M3) {
    if (!scales) return absl::OkStatus();
    return InvalidArgumentError(StrCat("scales are given but dst is ", Text(Name(dst.dtype)),
                                       "; drop them, or write e4m3"));
  }
  const Dims expected = ScaleShape(dst.shape, ScaleGranularity::kBlock1x128);
  if (!scales) {
    return InvalidArgumentError(
        StrCat("dst is e4m3 but there are no scales; add f32 ones of ", ToString(expected)));
  }
  view.tensor = &*scales;
  if (absl::Status tensor = CheckTensor(view, slots); !tensor.ok()) return tensor;
  if (absl::Status dtype = CheckDType(view, {DType::kF32}); !dtype.ok()) return dtype;
  return CheckShape(view, expected, "granularity 1x128 of dst");
}

absl::Status CheckActivation(Activation activation) {
  if (static_cast<int>(activation) < kActivations) return absl::OkStatus();
  return InvalidArgumentError(
      StrCat("activation number ", static_cast<int>(activation),
             " does not exist; use one of none, relu, silu, gelu_tanh, gelu_erf, relu_squared"));
}

absl::Status CheckOp(const GatedOp& op, absl::Span<const SlotInfo> slots) {
  View src{"src", &op.src};
  View dst{"dst", &op.dst, Access::kWrite};
  View scales{"scales", nullptr, Access::kWrite};
  absl::Status status = CheckTensor(src, slots);
  status.Update(CheckTensor(dst, slots));
  if (!status.ok()) return status;
  status.Update(CheckDType(src, kFloats));
  status.Update(CheckDType(dst, kGatedResults));
  if (!status.ok()) return status;
  if (status = CheckColumns(op, dst); !status.ok()) return status;
  const Gate gate{op.activation, op.period, op.alpha, op.limit, op.up_offset, op.alone};
  if (status = CheckGateNumbers(gate); !status.ok()) return status;
  if (status = CheckResultScales(op.dst, op.scales, slots, scales); !status.ok()) return status;
  status.Update(CheckApart(dst, src));
  if (scales.tensor == nullptr) return status;
  status.Update(CheckApart(scales, src));
  status.Update(CheckApart(dst, scales));
  return status;
}

}  // namespace gemmd::kernels::validate
