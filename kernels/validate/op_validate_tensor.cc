#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/text.h"
#include "kernels/validate/op_validate.h"

namespace gemmd::kernels::validate {
namespace {

using absl::InvalidArgumentError;
using absl::StrCat;

absl::Status CheckForm(const View& view) {
  const TensorRef& tensor = *view.tensor;
  // First of all: every later line indexes dtypes and Dims with these.
  if (static_cast<size_t>(tensor.dtype) >= kAllDTypes) {
    return InvalidArgumentError(StrCat(view.name, " has dtype number ",
                                       static_cast<int>(tensor.dtype),
                                       ", which does not exist; use one of f32, bf16, f16, e4m3, "
                                       "e5m2, i8, i32"));
  }
  if (tensor.shape.rank < 1 || tensor.shape.rank > kMaxRank) {
    return InvalidArgumentError(StrCat(view.name, " has rank ", tensor.shape.rank, "; give 1 to ",
                                       kMaxRank, " dimensions"));
  }
  if (tensor.strides.rank != tensor.shape.rank) {
    return InvalidArgumentError(StrCat(view.name, " has ", tensor.strides.rank, " strides for ",
                                       tensor.shape.rank,
                                       " dimensions; give one stride per dimension"));
  }
  return absl::OkStatus();
}

// Sorted by stride, each dimension must step over everything the smaller ones span. That refuses a
// few exotic views whose elements interleave without meeting; none of them is a matrix.
absl::Status CheckDistinctElements(const View& view) {
  const TensorRef& tensor = *view.tensor;
  std::array<std::pair<int64_t, int64_t>, kMaxRank> dims;  // {stride, extent}
  int count = 0;
  for (int i = 0; i < tensor.shape.rank; ++i) {
    if (tensor.shape[i] > 1) dims[count++] = {tensor.strides[i], tensor.shape[i]};
  }
  for (int i = 1; i < count; ++i) {
    for (int j = i; j > 0 && dims[j] < dims[j - 1]; --j) std::swap(dims[j], dims[j - 1]);
  }
  int64_t span = 0;  // cannot overflow: TouchedBytes has added the same numbers up
  for (int i = 0; i < count; ++i) {
    const auto [stride, extent] = dims[i];
    if (stride <= span) {
      return InvalidArgumentError(StrCat(view.name, " is written but its strides ",
                                         ToString(tensor.strides), " map several elements of ",
                                         ToString(tensor.shape),
                                         " to one address; give each element its own"));
    }
    span += stride * (extent - 1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTensor(View& view, absl::Span<const SlotInfo> slots) {
  if (absl::Status form = CheckForm(view); !form.ok()) return form;
  const TensorRef& tensor = *view.tensor;
  if (tensor.slot < 0 || static_cast<size_t>(tensor.slot) >= slots.size()) {
    return InvalidArgumentError(StrCat(view.name, " names slot ", tensor.slot, " of ", slots.size(),
                                       "; use an index below that"));
  }
  const int size = SizeBytes(tensor.dtype);
  if (tensor.offset_bytes % size != 0) {
    return InvalidArgumentError(StrCat(view.name, ": offset_bytes=", tensor.offset_bytes,
                                       " is not a multiple of ", size, " (one ",
                                       Text(Name(tensor.dtype)), "); align the offset"));
  }
  absl::StatusOr<ByteRange> range = TouchedBytes(tensor);
  if (!range.ok()) return InvalidArgumentError(StrCat(view.name, ": ", range.status().message()));
  const SlotInfo& slot = slots[tensor.slot];
  if (range->end > slot.size_bytes) {
    return InvalidArgumentError(StrCat(view.name, " reaches byte ", range->end, " of a slot of ",
                                       slot.size_bytes, " bytes; shrink the view ",
                                       ToString(tensor.shape), " or use a larger buffer"));
  }
  absl::StatusOr<int64_t> elements = NumElements(tensor.shape);
  if (!elements.ok()) {
    return InvalidArgumentError(StrCat(view.name, ": ", elements.status().message()));
  }
  view.range = *range;
  if (view.access != Access::kWrite) return absl::OkStatus();
  if (slot.read_only) {
    return absl::FailedPreconditionError(
        StrCat(view.name, " would write slot ", tensor.slot,
               ", a published buffer, which is read-only; write to a buffer of your own"));
  }
  return view.range.empty() ? absl::OkStatus() : CheckDistinctElements(view);
}

absl::Status CheckApart(const View& written, const View& other) {
  if (written.tensor->slot != other.tensor->slot || !written.range.Overlaps(other.range)) {
    return absl::OkStatus();
  }
  return InvalidArgumentError(StrCat(written.name, " (bytes ", written.range.begin, " to ",
                                     written.range.end, ") overlaps ", other.name, " (bytes ",
                                     other.range.begin, " to ", other.range.end, ") in slot ",
                                     written.tensor->slot, "; place them apart"));
}

absl::Status CheckShape(const View& view, const Dims& expected, absl::string_view expected_from) {
  if (view.tensor->shape == expected) return absl::OkStatus();
  return InvalidArgumentError(StrCat(view.name, " has shape ", ToString(view.tensor->shape), ", ",
                                     expected_from, " asks for ", ToString(expected), "; reshape ",
                                     view.name));
}

absl::Status CheckSameShape(const View& left, const View& right) {
  return CheckShape(left, right.tensor->shape, right.name);
}

absl::Status CheckDType(const View& view, absl::Span<const DType> allowed) {
  const DType dtype = view.tensor->dtype;
  if (std::find(allowed.begin(), allowed.end(), dtype) != allowed.end()) return absl::OkStatus();
  const std::string names = absl::StrJoin(
      allowed, " or ", [](std::string* out, DType d) { absl::StrAppend(out, Text(Name(d))); });
  return InvalidArgumentError(StrCat(view.name, " is ", Text(Name(dtype)),
                                     ", which is not supported here", "; convert it to ", names));
}

absl::Status CheckGranularity(absl::string_view name, ScaleGranularity granularity) {
  if (static_cast<int>(granularity) <= static_cast<int>(ScaleGranularity::kBlock128x128)) {
    return absl::OkStatus();
  }
  return InvalidArgumentError(StrCat(name, " has scale granularity number ",
                                     static_cast<int>(granularity),
                                     ", which does not exist; use one of none, tensor, row, 1x128, "
                                     "128x128"));
}

absl::Status CheckScales(const View& values, ScaleGranularity granularity,
                         const std::optional<TensorRef>& scales, View& view,
                         absl::Span<const SlotInfo> slots) {
  if (absl::Status known = CheckGranularity(values.name, granularity); !known.ok()) return known;
  if (granularity == ScaleGranularity::kNone) {
    if (!scales) return absl::OkStatus();
    return InvalidArgumentError(StrCat(view.name, " is given but ", values.name,
                                       " has granularity none; drop it or set the granularity"));
  }
  if (!scales) {
    return InvalidArgumentError(StrCat(values.name, " has granularity ", Text(Name(granularity)),
                                       " but no scales; add ", view.name));
  }
  view.tensor = &*scales;
  if (absl::Status tensor = CheckTensor(view, slots); !tensor.ok()) return tensor;
  if (absl::Status dtype = CheckDType(view, {DType::kF32}); !dtype.ok()) return dtype;
  const bool shared = granularity == ScaleGranularity::kPerTensor && view.access == Access::kRead;
  if (shared && view.tensor->shape == MakeDims({1})) return absl::OkStatus();
  return CheckShape(view, ScaleShape(values.tensor->shape, granularity),
                    StrCat("granularity ", Text(Name(granularity)), " of ", values.name,
                           shared ? ", or [1] for the whole batch" : ""));
}

absl::Status CheckIndex(const View& view) {
  const TensorRef& tensor = *view.tensor;
  if (absl::Status dtype = CheckDType(view, {DType::kI32}); !dtype.ok()) return dtype;
  const int last = tensor.shape.rank - 1;
  if (tensor.shape[last] <= 1 || tensor.strides[last] == 1) return absl::OkStatus();
  return InvalidArgumentError(StrCat(view.name, " has stride ", tensor.strides[last],
                                     " along its last dimension; copy it to be dense"));
}

absl::Status CheckRank(const View& view, int rank, absl::string_view wanted) {
  if (view.tensor->shape.rank == rank) return absl::OkStatus();
  return InvalidArgumentError(
      StrCat(view.name, " has shape ", ToString(view.tensor->shape), "; give it ", wanted));
}

absl::Status CheckFactors(const View& a, const View& b) {
  GEMMD_RETURN_IF_ERROR(CheckDType(a, kFactors));
  GEMMD_RETURN_IF_ERROR(CheckDType(b, kFactors));
  if (Multiply(a.tensor->dtype, b.tensor->dtype)) return absl::OkStatus();
  return InvalidArgumentError(StrCat(a.name, " is ", Text(Name(a.tensor->dtype)), " but ", b.name,
                                     " is ", Text(Name(b.tensor->dtype)), "; convert one of them"));
}

absl::Status CheckAddend(const std::optional<TensorRef>& c, float beta, const View& d,
                         absl::Span<const SlotInfo> slots) {
  if (!c) {
    if (beta == 0) return absl::OkStatus();
    return InvalidArgumentError(
        StrCat("beta=", beta, " but there is no c; add c or set beta to 0"));
  }
  View view{"c", &*c, Access::kRead, {}};
  GEMMD_RETURN_IF_ERROR(CheckTensor(view, slots));
  GEMMD_RETURN_IF_ERROR(CheckSameShape(view, d));
  GEMMD_RETURN_IF_ERROR(CheckDType(view, {d.tensor->dtype}));
  const bool in_place = c->slot == d.tensor->slot && c->offset_bytes == d.tensor->offset_bytes &&
                        c->strides == d.tensor->strides;
  return in_place ? absl::OkStatus() : CheckApart(d, view);
}

}  // namespace gemmd::kernels::validate
