// An operand of a matmul in this process's memory, and its values in float64.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "client/cli/files/dtype.h"
#include "client/cpp/types.h"

namespace gemmd::cli {

using Granularity = client::ScaleGranularity;

// Scales of one batch entry: [1], [rows], [rows, ceil(k/128)] or [ceil(rows/128), ceil(k/128)]; 0
// for kNone.
int64_t ScaleCount(Granularity granularity, int64_t rows, int64_t k);

// [batch, rows, k]: A's rows are m, B's n. A row-major [k, n] matrix serves as B with row_stride 1
// and k_stride n. Owns nothing.
struct HostOperand {
  files::DType dtype = files::DType::kF32;
  const std::byte* values = nullptr;
  int64_t rows = 0;
  int64_t k = 0;
  int64_t batch_stride = 0;  // elements; 0 repeats one matrix for every batch entry
  int64_t row_stride = 0;
  int64_t k_stride = 1;
  Granularity granularity = Granularity::kNone;
  const float* scales = nullptr;  // dense; batch entry i begins at i * scale_batch_stride
  int64_t scale_batch_stride = 0;
};

// out[j] = value of element [batch, row, j]; out.size() is operand.k.
void DequantizeRow(const HostOperand& operand, int64_t batch, int64_t row, std::span<double> out);

}  // namespace gemmd::cli
