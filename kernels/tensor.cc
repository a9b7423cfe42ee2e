#include "kernels/tensor.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace gemmd::kernels {

Dims MakeDims(std::initializer_list<int64_t> values) {
  Dims dims;
  for (int64_t value : values) {
    if (dims.rank == kMaxRank) break;
    dims.values[dims.rank++] = value;
  }
  return dims;
}

std::string ToString(const Dims& dims) {
  return absl::StrCat("[", absl::StrJoin(absl::MakeSpan(dims.values.data(), dims.rank), ", "), "]");
}

Dims RowMajorStrides(const Dims& shape) {
  Dims strides;
  strides.rank = shape.rank;
  int64_t step = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    strides[i] = step;
    // A shape too large for int64 is refused by NumElements; here it must only not be undefined.
    if (__builtin_mul_overflow(step, shape[i], &step)) step = 0;
  }
  return strides;
}

TensorRef Dense(int slot, DType dtype, const Dims& shape, int64_t offset_bytes) {
  return {slot, offset_bytes, dtype, shape, RowMajorStrides(shape)};
}

TensorRef ItemOf(TensorRef tensor, int64_t item) {
  tensor.offset_bytes += item * tensor.strides[0] * SizeBytes(tensor.dtype);
  for (int i = 1; i < tensor.shape.rank; ++i) {
    tensor.shape[i - 1] = tensor.shape[i];
    tensor.strides[i - 1] = tensor.strides[i];
  }
  tensor.shape[--tensor.shape.rank] = 0;
  tensor.strides[--tensor.strides.rank] = 0;
  return tensor;
}

absl::StatusOr<int64_t> NumElements(const Dims& shape) {
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] == 0) return 0;
  }
  int64_t count = 1;
  for (int i = 0; i < shape.rank; ++i) {
    if (__builtin_mul_overflow(count, shape[i], &count)) {
      return absl::OutOfRangeError(absl::StrCat("shape ", ToString(shape),
                                                " has more elements than int64 can count; "
                                                "use smaller extents"));
    }
  }
  return count;
}

absl::StatusOr<ByteRange> TouchedBytes(const TensorRef& tensor) {
  if (tensor.offset_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("offset_bytes=", tensor.offset_bytes,
                                                   " is negative; use an offset within the slot"));
  }
  bool empty = false;
  int64_t last = 0;  // index, in elements, of the farthest one
  for (int i = 0; i < tensor.shape.rank; ++i) {
    const int64_t extent = tensor.shape[i];
    const int64_t stride = tensor.strides[i];
    if (extent < 0 || stride < 0) {
      return absl::InvalidArgumentError(absl::StrCat(extent < 0 ? "extent " : "stride ",
                                                     extent < 0 ? extent : stride, " of dimension ",
                                                     i, " is negative; use 0 or more"));
    }
    if (extent == 0) {
      empty = true;
      continue;
    }
    int64_t span = 0;
    if (__builtin_mul_overflow(extent - 1, stride, &span) ||
        __builtin_add_overflow(last, span, &last)) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", i, " (extent ", extent, ", stride ", stride,
                       ") reaches beyond int64; use smaller extents or strides"));
    }
  }
  if (empty) return ByteRange{tensor.offset_bytes, tensor.offset_bytes};
  int64_t end = 0;
  if (__builtin_add_overflow(last, int64_t{1}, &end) ||
      __builtin_mul_overflow(end, int64_t{SizeBytes(tensor.dtype)}, &end) ||
      __builtin_add_overflow(end, tensor.offset_bytes, &end)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", ToString(tensor.shape), " with strides ", ToString(tensor.strides),
                     " at offset_bytes=", tensor.offset_bytes,
                     " reaches beyond int64 bytes; use smaller extents, strides or offset"));
  }
  return ByteRange{tensor.offset_bytes, end};
}

}  // namespace gemmd::kernels
