// Views with addresses: what a TensorRef becomes once a program runs. The ops have been validated,
// so nothing here checks bounds.

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "kernels/backend.h"

namespace gemmd::kernels::cpu {

inline std::byte* Address(const TensorRef& tensor, const Bindings& bindings) {
  return bindings.slots[tensor.slot] + tensor.offset_bytes;
}

// One batch item of a matrix. Strides in elements.
struct BoundMatrix {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 0;

  std::byte* At(int64_t row, int64_t col) const {
    return data + (row * row_stride + col * col_stride) * SizeBytes(dtype);
  }
};

// A matrix of rank 2 is the same for every batch item.
inline BoundMatrix BindMatrix(const TensorRef& tensor, const Bindings& bindings, int64_t batch) {
  const int r = tensor.shape.rank;
  BoundMatrix matrix{Address(tensor, bindings), tensor.dtype,          tensor.shape[r - 2],
                     tensor.shape[r - 1],       tensor.strides[r - 2], tensor.strides[r - 1]};
  if (r == 3) matrix.data += batch * tensor.strides[0] * SizeBytes(tensor.dtype);
  return matrix;
}

// One batch item's scales, of any granularity, as a function of the element.
struct BoundScales {
  float* data = nullptr;  // null: no scales, every factor is 1
  int64_t rows_per_scale = std::numeric_limits<int64_t>::max();
  int64_t k_per_scale = std::numeric_limits<int64_t>::max();
  int64_t row_stride = 0;
  int64_t k_stride = 0;

  float* At(int64_t row, int64_t k) const {
    return data + row / rows_per_scale * row_stride + k / k_per_scale * k_stride;
  }
  float Factor(int64_t row, int64_t k) const { return data == nullptr ? 1.0f : *At(row, k); }
  // Elements from `k` on, at most `limit`, that share their row's scale.
  int64_t RunAlongK(int64_t k, int64_t limit) const {
    if (k_per_scale == std::numeric_limits<int64_t>::max()) return limit;
    const int64_t left = k_per_scale - k % k_per_scale;
    return left < limit ? left : limit;
  }
};

inline BoundScales BindScales(const TensorRef& scales, ScaleGranularity granularity, bool batched,
                              const Bindings& bindings, int64_t batch) {
  BoundScales bound;
  bound.data = reinterpret_cast<float*>(Address(scales, bindings));
  const int first = batched ? 1 : 0;
  const bool shared = granularity == ScaleGranularity::kPerTensor && scales.shape.rank == 1;
  if (batched && !shared) bound.data += batch * scales.strides[0];
  if (granularity == ScaleGranularity::kPerTensor) return bound;
  bound.row_stride = scales.strides[first];
  bound.rows_per_scale = granularity == ScaleGranularity::kBlock128x128 ? kScaleBlock : 1;
  if (granularity == ScaleGranularity::kPerRow) return bound;
  bound.k_per_scale = kScaleBlock;
  bound.k_stride = scales.strides[first + 1];
  return bound;
}

inline BoundScales BindScales(const Operand& operand, const Bindings& bindings, int64_t batch) {
  if (!operand.scales) return {};
  return BindScales(*operand.scales, operand.granularity, operand.values.shape.rank == 3, bindings,
                    batch);
}

}  // namespace gemmd::kernels::cpu
