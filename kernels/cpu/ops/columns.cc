#include "kernels/cpu/ops/columns.h"

#include <algorithm>

#include "kernels/cpu/ops/convert.h"
#include "kernels/cpu/ops/quantize.h"

namespace gemmd::kernels::cpu {

static_assert(kColumnsAtOnce % kScaleBlock == 0, "no block lies in two runs of columns");

void LoadColumns(const BoundMatrix& src, int64_t row, int64_t col, int64_t n, std::byte* dense,
                 float* values) {
  const std::byte* from = src.At(row, col);
  if (src.col_stride != 1) {
    Gather(SizeBytes(src.dtype), from, src.col_stride, n, dense);
    from = dense;
  }
  ToF32(src.dtype, from, n, values);
}

void StoreColumns(const BoundMatrix& dst, const BoundScales& scales, int64_t row, int64_t col,
                  int64_t n, const float* values, std::byte* dense) {
  std::byte* const target = dst.At(row, col);
  std::byte* const out = dst.col_stride == 1 ? target : dense;
  if (scales.data == nullptr) {
    FromF32(dst.dtype, values, n, out);
  } else {
    for (int64_t i = 0; i < n; i += kScaleBlock) {
      *scales.At(row, col + i) =
          QuantizeRun(dst.dtype, values + i, std::min(kScaleBlock, n - i), out + i);
    }
  }
  if (out == dense) Scatter(SizeBytes(dst.dtype), dense, n, target, dst.col_stride);
}

}  // namespace gemmd::kernels::cpu
