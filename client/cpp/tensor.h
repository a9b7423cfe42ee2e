// A typed view of a buffer: where element [0, ..., 0] is, the extents, and the strides. A value: it
// owns nothing and keeps nothing alive.
//
//   Tensor w = weights.tensor();                // the buffer's own dtype and shape
//   Tensor rows = w.Slice(0, 128, 64);          // rows 128..191
//   ops.Add(Matmul{.a = x, .b = kn.Transposed(), .d = y});

#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/cpp/types.h"

namespace gemmd::client {

// 1 to 3 of them: a matrix, its rows, and the batch in front.
using Dims = absl::InlinedVector<int64_t, 3>;

// A view that cannot be (a slice past the end, a reshape of a strided view) is made invalid rather
// than refused: status() says why, and whatever is built from it (a view, an OpList) says the same.
// Nothing invalid is ever sent.
class Tensor {
 public:
  Tensor() = default;  // no tensor: what an optional operand is when it is absent
  // Row-major over `shape`, starting `offset_bytes` into the buffer.
  Tensor(const Handle& buffer, DType dtype, absl::Span<const int64_t> shape,
         int64_t offset_bytes = 0);
  // `strides` in elements, >= 0, one for each extent.
  Tensor(const Handle& buffer, DType dtype, absl::Span<const int64_t> shape,
         absl::Span<const int64_t> strides, int64_t offset_bytes);

  bool empty() const { return buffer_.empty(); }
  const absl::Status& status() const { return status_; }

  const Handle& buffer() const { return buffer_; }
  int64_t offset_bytes() const { return offset_bytes_; }
  DType dtype() const { return dtype_; }
  absl::Span<const int64_t> shape() const { return shape_; }
  absl::Span<const int64_t> strides() const { return strides_; }  // always one for each extent
  int rank() const { return static_cast<int>(shape_.size()); }

  int64_t elements() const;     // product of the extents
  int64_t dense_bytes() const;  // elements times their size
  bool dense() const;           // row-major without gaps

  // The last two extents change places; the bytes stay. A row-major [k, n] matrix serves as B so.
  Tensor Transposed() const;
  // `length` entries of dimension `dim` from `start` on; keeps the rank.
  Tensor Slice(int dim, int64_t start, int64_t length) const;
  // Entry `index` of the first dimension; one rank less.
  Tensor At(int64_t index) const;
  // Other extents over the same elements. The view must be dense.
  Tensor Reshaped(absl::Span<const int64_t> shape) const;

 private:
  Tensor Invalid(absl::Status why) const;

  Handle buffer_;
  DType dtype_ = DType::kUnspecified;
  int64_t offset_bytes_ = 0;
  Dims shape_;
  Dims strides_;
  absl::Status status_;
};

}  // namespace gemmd::client
