// Tensor maps: how the copy engine sees a matrix.

#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace gemmd::kernels::cuda {

// [batch, planes, rows, cols] with stride 1 along cols; a box is of one batch entry. Elements
// outside the tensor load as zeros.
struct TensorView {
  const void* address = nullptr;  // a multiple of 16
  int64_t cols = 0;
  int64_t rows = 0;
  int64_t planes = 1;
  int64_t batch = 1;
  int64_t row_stride_bytes = 0;  // strides: multiples of 16, unless the extent is 1
  int64_t plane_stride_bytes = 0;
  int64_t batch_stride_bytes = 0;
  int box_cols = 0;
  int box_rows = 0;
  int box_planes = 1;
  // L2 fetches so many bytes where one is missing: 128 or 256. Of values alone, and 128 where rows
  // begin within lines.
  int l2_bytes = 256;
};

// Values of any type as bytes: a column is a byte. Boxes of 128 columns, in the 128-byte swizzle
// that WGMMA reads.
absl::StatusOr<CUtensorMap> ValuesMap(const TensorView& view);
// FP32 scales, boxes as they lie.
absl::StatusOr<CUtensorMap> ScalesMap(const TensorView& view);

// 16-bit results, stored from boxes of 64 columns in the 128-byte swizzle, or of others as they
// lie.
absl::StatusOr<CUtensorMap> StoreMap(const TensorView& view);
// FP32 results, stored from boxes of 32 columns in the 128-byte swizzle, or added to what is there.
absl::StatusOr<CUtensorMap> StoreMapF32(const TensorView& view);

}  // namespace gemmd::kernels::cuda
