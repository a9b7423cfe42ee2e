#include "client/cpp/tensor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmd::client {
namespace {

Dims RowMajor(absl::Span<const int64_t> shape) {
  Dims strides(shape.size(), 1);
  for (int i = static_cast<int>(shape.size()) - 2; i >= 0; --i) {
    // Wraps for absurd extents instead of overflowing; the server refuses those.
    strides[i] = static_cast<int64_t>(static_cast<uint64_t>(strides[i + 1]) *
                                      static_cast<uint64_t>(shape[i + 1]));
  }
  return strides;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

Tensor::Tensor(const Handle& buffer, DType dtype, absl::Span<const int64_t> shape,
               int64_t offset_bytes)
    : Tensor(buffer, dtype, shape, RowMajor(shape), offset_bytes) {}

Tensor::Tensor(const Handle& buffer, DType dtype, absl::Span<const int64_t> shape,
               absl::Span<const int64_t> strides, int64_t offset_bytes)
    : buffer_(buffer),
      dtype_(dtype),
      offset_bytes_(offset_bytes),
      shape_(shape.begin(), shape.end()),
      strides_(strides.begin(), strides.end()) {
  if (buffer.empty()) {
    status_ = absl::InvalidArgumentError("the tensor has no buffer");
  } else if (SizeBytes(dtype) == 0) {
    status_ = absl::InvalidArgumentError(
        "the tensor has no dtype; create the buffer with one or use View");
  } else if (shape.empty() || shape.size() > 3) {
    status_ = absl::InvalidArgumentError(absl::StrCat("shape ", ShapeText(shape), " has rank ",
                                                      shape.size(), "; 1 to 3 are served"));
  } else if (strides.size() != shape.size()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(strides.size(), " strides for shape ", ShapeText(shape)));
  }
}

int64_t Tensor::elements() const {
  uint64_t product = shape_.empty() ? 0 : 1;
  for (int64_t extent : shape_) product *= static_cast<uint64_t>(extent);
  return static_cast<int64_t>(product);
}

int64_t Tensor::dense_bytes() const { return elements() * SizeBytes(dtype_); }

bool Tensor::dense() const {
  const Dims row_major = RowMajor(shape_);
  for (int i = 0; i < rank(); ++i) {
    if (shape_[i] != 1 && strides_[i] != row_major[i]) return false;
  }
  return true;
}

Tensor Tensor::Invalid(absl::Status why) const {
  Tensor tensor = *this;
  tensor.status_ = std::move(why);
  return tensor;
}

Tensor Tensor::Transposed() const {
  if (!status_.ok()) return *this;
  if (rank() < 2) {
    return Invalid(absl::InvalidArgumentError(
        absl::StrCat("cannot transpose shape ", ShapeText(shape_), ": rank 2 or 3 is needed")));
  }
  Tensor tensor = *this;
  std::swap(tensor.shape_[rank() - 1], tensor.shape_[rank() - 2]);
  std::swap(tensor.strides_[rank() - 1], tensor.strides_[rank() - 2]);
  return tensor;
}

Tensor Tensor::Slice(int dim, int64_t start, int64_t length) const {
  if (!status_.ok()) return *this;
  if (dim < 0 || dim >= rank()) {
    return Invalid(absl::InvalidArgumentError(
        absl::StrCat("cannot slice dimension ", dim, " of shape ", ShapeText(shape_))));
  }
  // Compared without adding, which could overflow.
  if (start < 0 || length < 0 || start > shape_[dim] || length > shape_[dim] - start) {
    return Invalid(absl::InvalidArgumentError(absl::StrCat("slice of ", length, " from ", start,
                                                           " does not lie in dimension ", dim,
                                                           " of shape ", ShapeText(shape_))));
  }
  Tensor tensor = *this;
  tensor.shape_[dim] = length;
  tensor.offset_bytes_ += start * strides_[dim] * SizeBytes(dtype_);
  return tensor;
}

Tensor Tensor::At(int64_t index) const {
  if (!status_.ok()) return *this;
  if (rank() < 2) {
    return Invalid(absl::InvalidArgumentError(absl::StrCat(
        "cannot take an entry of shape ", ShapeText(shape_), ": rank 2 or 3 is needed")));
  }
  Tensor tensor = Slice(0, index, 1);
  if (!tensor.status_.ok()) return tensor;
  tensor.shape_.erase(tensor.shape_.begin());
  tensor.strides_.erase(tensor.strides_.begin());
  return tensor;
}

Tensor Tensor::Reshaped(absl::Span<const int64_t> shape) const {
  if (!status_.ok()) return *this;
  if (!dense()) {
    return Invalid(absl::InvalidArgumentError(absl::StrCat(
        "cannot reshape a strided view of shape ", ShapeText(shape_), "; copy it to a dense one")));
  }
  Tensor tensor(buffer_, dtype_, shape, offset_bytes_);
  if (tensor.status_.ok() && tensor.elements() != elements()) {
    return Invalid(absl::InvalidArgumentError(
        absl::StrCat("shape ", ShapeText(shape), " has ", tensor.elements(), " elements, shape ",
                     ShapeText(shape_), " has ", elements())));
  }
  return tensor;
}

}  // namespace gemmd::client
