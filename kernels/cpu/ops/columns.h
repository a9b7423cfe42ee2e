// Some columns of a row, to FP32 and back. What lies apart is gathered and scattered by way of
// `dense`, which holds kColumnsAtOnce elements of any type.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/bound.h"

namespace gemmd::kernels::cpu {

inline constexpr int64_t kColumnsAtOnce = 512;  // at most; whole blocks of scales

// Columns [col, col + n) of a row.
void LoadColumns(const BoundMatrix& src, int64_t row, int64_t col, int64_t n, std::byte* dense,
                 float* values);
// n results into dst, rounded; with scales, of 1x128, quantised block by block.
void StoreColumns(const BoundMatrix& dst, const BoundScales& scales, int64_t row, int64_t col,
                  int64_t n, const float* values, std::byte* dense);

}  // namespace gemmd::kernels::cpu
