// Is a quantised matrix near its source? Bit-exactness is tests/kernels/cuda's business; a bench
// only makes sure that it does not time a kernel that does nothing.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::bench {

// values: [rows, k] E4M3 or INT8, dense; the scale of (r, c) is at
// scales[r / rows_per_scale * row_stride + c / 128 * k_stride]. source: [rows, k] BF16, dense.
struct QuantizedMatrix {
  const uint16_t* source;
  const uint8_t* values;
  const float* scales;
  int64_t rows;
  int64_t k;
  int64_t rows_per_scale;
  int64_t row_stride;
  int64_t k_stride;
  bool int8;
};

// Adds sum((x - y)^2) to sums[0] and sum(y^2) to sums[1], y of the source.
cudaError_t AddQuantizeErrors(const QuantizedMatrix& matrix, double* sums, cudaStream_t stream);

}  // namespace gemmd::kernels::bench
