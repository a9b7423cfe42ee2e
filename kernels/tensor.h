// TensorRef: a typed, strided view into one of a program's slots. No pointers: a slot is bound to
// memory only when the program runs, so that a kept program (a plan) can run again on other
// buffers.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/dtype.h"

namespace gemmd::kernels {

inline constexpr int kMaxRank = 3;  // [batch, rows, cols]

// Extents or strides in elements. Entries at and beyond `rank` are 0.
struct Dims {
  int rank = 0;
  std::array<int64_t, kMaxRank> values{};

  int64_t operator[](int i) const { return values[i]; }
  int64_t& operator[](int i) { return values[i]; }
  friend bool operator==(const Dims&, const Dims&) = default;
};

Dims MakeDims(std::initializer_list<int64_t> values);

// "[64, 7168]"
std::string ToString(const Dims& dims);

// Row-major strides for `shape`: the last dimension has stride 1.
Dims RowMajorStrides(const Dims& shape);

struct TensorRef {
  int slot = -1;             // index into the program's slots
  int64_t offset_bytes = 0;  // of element [0, ..., 0]; a multiple of the element size
  DType dtype = DType::kF32;
  Dims shape;    // rank 1..3, every extent >= 0
  Dims strides;  // same rank, in elements, >= 0; 0 repeats an element and is legal for inputs only
};

// Row-major, without gaps, from `offset_bytes` of its slot on.
TensorRef Dense(int slot, DType dtype, const Dims& shape, int64_t offset_bytes = 0);

// Item `item` of a tensor whose first dimension counts items: of one rank less.
TensorRef ItemOf(TensorRef tensor, int64_t item);

// Number of elements, or OUT_OF_RANGE when the product does not fit int64.
absl::StatusOr<int64_t> NumElements(const Dims& shape);

// Half-open range of bytes, within the slot, that a view may touch. Empty when the view has no
// elements.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin >= end; }
  bool Overlaps(const ByteRange& other) const {
    return !empty() && !other.empty() && begin < other.end && other.begin < end;
  }
};

// Overflow-checked: INVALID_ARGUMENT names the dimension that overflows or is negative.
absl::StatusOr<ByteRange> TouchedBytes(const TensorRef& tensor);

}  // namespace gemmd::kernels
