#include "kernels/validate/op_validate.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/op.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;
using validate::CheckApart;
using validate::CheckDType;
using validate::CheckSameShape;
using validate::CheckShape;
using validate::CheckTensor;
using validate::kFactors;
using validate::kFloats;
using validate::kGatedResults;
using validate::View;

constexpr DType kQuantised[] = {DType::kE4M3, DType::kE5M2, DType::kI8};

// Checks the ops of one program in order.
class Validator {
 public:
  Validator(absl::Span<const SlotInfo> slots, const IoSize& io)
      : slots_(slots), io_(io), output_filled_(io.output_bytes.size(), false) {}

  absl::Status operator()(const MatmulOp& op);
  absl::Status operator()(const QuantizeOp& op);
  absl::Status operator()(const ConvertOp& op) { return CheckMove(op.src, op.dst, false); }
  absl::Status operator()(const CopyOp& op) { return CheckMove(op.src, op.dst, true); }
  absl::Status operator()(const FillOp& op);
  absl::Status operator()(const WriteOp& op);
  absl::Status operator()(const ReadOp& op);
  template <class T>
  absl::Status operator()(const T& op) {
    return validate::CheckOp(op, slots_);
  }

 private:
  absl::Status CheckMove(const TensorRef& src, const TensorRef& dst, bool same_dtype);
  absl::Status CheckScales(const View& values, ScaleGranularity granularity,
                           const std::optional<TensorRef>& scales, View& view) {
    return validate::CheckScales(values, granularity, scales, view, slots_);
  }
  absl::Status CheckRows(const QuantizeOp& op, const View& dst, const View& scales);
  absl::Status CheckExtents(const MatmulOp& op);
  static absl::Status CheckGate(const MatmulOp& op, int64_t n);
  absl::Status CheckBytes(const View& view, absl::string_view what, int index,
                          absl::Span<const int64_t> lengths);

  absl::Span<const SlotInfo> slots_;
  IoSize io_;
  std::vector<bool> output_filled_;
};

absl::Status CheckMatrix(const View& view) {
  if (view.tensor->shape.rank >= 2) return absl::OkStatus();
  return InvalidArgumentError(StrCat(view.name, " has shape ", ToString(view.tensor->shape),
                                     "; give it 2 dimensions, or 3 with a leading batch"));
}

absl::Status CheckFinite(absl::string_view name, float value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return InvalidArgumentError(StrCat(name, "=", value, " is not finite; use a finite number"));
}

// a [batch?, m, k] against b [batch?, n, k], and what d must be.
absl::Status Validator::CheckExtents(const MatmulOp& op) {
  const Dims& a = op.a.values.shape;
  const Dims& b = op.b.values.shape;
  const int64_t k = a[a.rank - 1];
  if (b[b.rank - 1] != k) {
    return InvalidArgumentError(StrCat("k=", k, " of a ", ToString(a), " is not k=", b[b.rank - 1],
                                       " of b ", ToString(b), "; give b as [n, k]"));
  }
  if (b.rank == 3 && (a.rank != 3 || a[0] != b[0])) {
    return InvalidArgumentError(StrCat("batch of b ", ToString(b), " is not the batch of a ",
                                       ToString(a),
                                       "; give both the same, or b of rank 2 to share it"));
  }
  int64_t product = 1;
  bool empty = k == 0 || b[b.rank - 2] == 0;
  for (int i = 0; i < a.rank; ++i) empty = empty || a[i] == 0;
  bool overflow = false;
  for (int i = 0; i < a.rank; ++i) overflow |= __builtin_mul_overflow(product, a[i], &product);
  overflow |= __builtin_mul_overflow(product, b[b.rank - 2], &product);
  if (overflow && !empty) {
    return InvalidArgumentError(StrCat("m*n*k of a ", ToString(a), " and b ", ToString(b),
                                       " is not below 2^63; split the matmul"));
  }
  return absl::OkStatus();
}

absl::Status Validator::CheckGate(const MatmulOp& op, int64_t n) {
  GEMMD_RETURN_IF_ERROR(validate::CheckGateNumbers(*op.gate));
  if (op.activation != Activation::kNone) {
    return InvalidArgumentError(StrCat("activation ", Text(Name(op.activation)),
                                       " is given beside a gate, which has its own; use one"));
  }
  if (op.c || op.beta != 0) {
    return InvalidArgumentError("c is given beside a gate; add it with an op of its own");
  }
  if (op.gate->alone) return absl::OkStatus();
  if (n % 2 != 0) {
    return InvalidArgumentError(StrCat("n=", n, " of b ", ToString(op.b.values.shape),
                                       " is odd; a gate takes n/2 of gate and n/2 of up"));
  }
  return validate::CheckPeriod(op.gate->period, n / 2);
}

absl::Status Validator::operator()(const MatmulOp& op) {
  View a{"a", &op.a.values};
  View b{"b", &op.b.values};
  View d{"d", &op.d, Access::kWrite};
  View a_scales{"a.scales"};
  View b_scales{"b.scales"};
  for (View* view : {&a, &b, &d}) {
    GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots_));
    GEMMD_RETURN_IF_ERROR(CheckMatrix(*view));
  }
  GEMMD_RETURN_IF_ERROR(validate::CheckFactors(a, b));
  GEMMD_RETURN_IF_ERROR(op.gate ? CheckDType(d, kGatedResults) : CheckDType(d, kFloats));
  GEMMD_RETURN_IF_ERROR(CheckExtents(op));
  Dims out = op.a.values.shape;
  const int64_t n = op.b.values.shape[op.b.values.shape.rank - 2];
  if (op.gate) GEMMD_RETURN_IF_ERROR(CheckGate(op, n));
  out[out.rank - 1] = op.gate && !op.gate->alone ? n / 2 : n;
  GEMMD_RETURN_IF_ERROR(CheckShape(d, out, op.gate ? "gated a . b^T" : "a . b^T"));
  View d_scales{"d_scales", nullptr, Access::kWrite};
  GEMMD_RETURN_IF_ERROR(validate::CheckGateScales(d, op.d_scales, d_scales, slots_));
  GEMMD_RETURN_IF_ERROR(CheckScales(a, op.a.granularity, op.a.scales, a_scales));
  GEMMD_RETURN_IF_ERROR(CheckScales(b, op.b.granularity, op.b.scales, b_scales));
  for (const View* view : {&a, &b, &a_scales, &b_scales}) {
    if (view->tensor == nullptr) continue;
    GEMMD_RETURN_IF_ERROR(CheckApart(d, *view));
    if (d_scales.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(d_scales, *view));
  }
  if (d_scales.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(d, d_scales));
  GEMMD_RETURN_IF_ERROR(CheckFinite("alpha", op.alpha));
  GEMMD_RETURN_IF_ERROR(CheckFinite("beta", op.beta));
  GEMMD_RETURN_IF_ERROR(validate::CheckActivation(op.activation));
  GEMMD_RETURN_IF_ERROR(validate::CheckAddend(op.c, op.beta, d, slots_));
  if (op.bias) {
    View bias{"bias", &*op.bias};
    GEMMD_RETURN_IF_ERROR(CheckTensor(bias, slots_));
    GEMMD_RETURN_IF_ERROR(CheckShape(bias, MakeDims({n}), "n of b"));
    const DType own[] = {DType::kF32, op.d.dtype};
    const bool f32_alone = op.gate || op.d.dtype == DType::kF32;
    GEMMD_RETURN_IF_ERROR(CheckDType(bias, absl::MakeConstSpan(own, f32_alone ? 1 : 2)));
    GEMMD_RETURN_IF_ERROR(CheckApart(d, bias));
    if (d_scales.tensor != nullptr) GEMMD_RETURN_IF_ERROR(CheckApart(d_scales, bias));
  }
  return absl::OkStatus();
}

absl::Status Validator::operator()(const QuantizeOp& op) {
  View src{"src", &op.src};
  View dst{"dst", &op.dst, Access::kWrite};
  View scales{"scales", nullptr, Access::kWrite};
  for (View* view : {&src, &dst}) {
    GEMMD_RETURN_IF_ERROR(CheckTensor(*view, slots_));
    GEMMD_RETURN_IF_ERROR(CheckMatrix(*view));
  }
  GEMMD_RETURN_IF_ERROR(CheckDType(src, kFloats));
  GEMMD_RETURN_IF_ERROR(CheckDType(dst, kQuantised));
  if (!op.rows) GEMMD_RETURN_IF_ERROR(CheckSameShape(dst, src));
  if (op.granularity == ScaleGranularity::kNone) {
    return InvalidArgumentError(
        "granularity none asks for no scales; use tensor, row, 1x128 or 128x128");
  }
  const std::optional<TensorRef> scales_tensor = op.scales;
  GEMMD_RETURN_IF_ERROR(CheckScales(op.rows ? dst : src, op.granularity, scales_tensor, scales));
  if (op.rows) GEMMD_RETURN_IF_ERROR(CheckRows(op, dst, scales));
  GEMMD_RETURN_IF_ERROR(CheckApart(dst, src));
  GEMMD_RETURN_IF_ERROR(CheckApart(scales, src));
  return CheckApart(dst, scales);
}

// What a Quantize that gathers rows asks for besides.
absl::Status Validator::CheckRows(const QuantizeOp& op, const View& dst, const View& scales) {
  View rows{"rows", &*op.rows};
  GEMMD_RETURN_IF_ERROR(CheckTensor(rows, slots_));
  GEMMD_RETURN_IF_ERROR(validate::CheckIndex(rows));
  if (op.granularity != ScaleGranularity::kPerRow &&
      op.granularity != ScaleGranularity::kBlock1x128) {
    return InvalidArgumentError(StrCat("rows are given with granularity ",
                                       Text(Name(op.granularity)),
                                       ", whose scales several rows share; use row or 1x128"));
  }
  if (op.src.shape.rank != 2 || op.dst.shape.rank != 2 || op.src.shape[1] != op.dst.shape[1]) {
    return InvalidArgumentError(StrCat("src ", ToString(op.src.shape), " and dst ",
                                       ToString(op.dst.shape),
                                       " are not matrices of as many columns; rows go from one "
                                       "matrix to another"));
  }
  GEMMD_RETURN_IF_ERROR(CheckShape(rows, MakeDims({op.dst.shape[0]}), "the rows of dst"));
  GEMMD_RETURN_IF_ERROR(CheckApart(dst, rows));
  return CheckApart(scales, rows);
}

absl::Status Validator::CheckMove(const TensorRef& src_tensor, const TensorRef& dst_tensor,
                                  bool same_dtype) {
  View src{"src", &src_tensor};
  View dst{"dst", &dst_tensor, Access::kWrite};
  GEMMD_RETURN_IF_ERROR(CheckTensor(src, slots_));
  GEMMD_RETURN_IF_ERROR(CheckTensor(dst, slots_));
  GEMMD_RETURN_IF_ERROR(CheckSameShape(dst, src));
  if (same_dtype && src_tensor.dtype != dst_tensor.dtype) {
    return InvalidArgumentError(StrCat("src is ", Text(Name(src_tensor.dtype)), " but dst is ",
                                       Text(Name(dst_tensor.dtype)), "; use convert"));
  }
  if (src_tensor.dtype != dst_tensor.dtype) {
    for (const View& view : {src, dst}) GEMMD_RETURN_IF_ERROR(CheckDType(view, kFactors));
  }
  return CheckApart(dst, src);
}

absl::Status Validator::operator()(const FillOp& op) {
  View dst{"dst", &op.dst, Access::kWrite};
  return CheckTensor(dst, slots_);
}

absl::Status Validator::CheckBytes(const View& view, absl::string_view what, int index,
                                   absl::Span<const int64_t> lengths) {
  if (index < 0 || static_cast<size_t>(index) >= lengths.size()) {
    return InvalidArgumentError(StrCat(what, " ", index, " of ", lengths.size(),
                                       " does not exist; use an index below that"));
  }
  // Cannot overflow: CheckTensor has counted the elements, and written or read bytes fit a slot
  // unless a stride is 0, which is why the product is checked all the same.
  int64_t bytes = NumElements(view.tensor->shape).value_or(0);
  if (__builtin_mul_overflow(bytes, int64_t{SizeBytes(view.tensor->dtype)}, &bytes) ||
      bytes != lengths[index]) {
    return InvalidArgumentError(StrCat(
        what, " ", index, " has ", lengths[index], " bytes but ", Text(Name(view.tensor->dtype)),
        " ", ToString(view.tensor->shape), " takes ", bytes, "; make them equal"));
  }
  return absl::OkStatus();
}

absl::Status Validator::operator()(const WriteOp& op) {
  View dst{"dst", &op.dst, Access::kWrite};
  GEMMD_RETURN_IF_ERROR(CheckTensor(dst, slots_));
  return CheckBytes(dst, "input", op.input, io_.input_bytes);
}

absl::Status Validator::operator()(const ReadOp& op) {
  View src{"src", &op.src};
  GEMMD_RETURN_IF_ERROR(CheckTensor(src, slots_));
  GEMMD_RETURN_IF_ERROR(CheckBytes(src, "output", op.output, io_.output_bytes));
  if (output_filled_[op.output]) {
    return InvalidArgumentError(
        StrCat("output ", op.output, " is filled by an earlier read; give each its own"));
  }
  output_filled_[op.output] = true;
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateOps(absl::Span<const Op> ops, absl::Span<const SlotInfo> slots,
                         const IoSize& io) {
  Validator validator(slots, io);
  for (size_t i = 0; i < ops.size(); ++i) {
    absl::Status status = std::visit(validator, ops[i]);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          StrCat("op ", i, " (", Text(Name(ops[i])), "): ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace gemmd::kernels
