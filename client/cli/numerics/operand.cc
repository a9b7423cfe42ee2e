#include "client/cli/numerics/operand.h"

namespace gemmd::cli {
namespace {

constexpr int64_t kBlock = 128;

int64_t Blocks(int64_t extent) { return (extent + kBlock - 1) / kBlock; }

}  // namespace

int64_t ScaleCount(Granularity granularity, int64_t rows, int64_t k) {
  switch (granularity) {
    case Granularity::kNone:
      return 0;
    case Granularity::kPerTensor:
      return 1;
    case Granularity::kPerRow:
      return rows;
    case Granularity::kBlock1x128:
      return rows * Blocks(k);
    case Granularity::kBlock128x128:
      return Blocks(rows) * Blocks(k);
  }
  return 0;
}

void DequantizeRow(const HostOperand& operand, int64_t batch, int64_t row, std::span<double> out) {
  const int64_t first = batch * operand.batch_stride + row * operand.row_stride;
  if (operand.k_stride == 1) {
    files::ToDouble(operand.dtype, operand.values, first, out);
  } else {
    for (int64_t j = 0; j < operand.k; ++j) {
      out[j] = files::ElementAt(operand.dtype, operand.values, first + j * operand.k_stride);
    }
  }
  const float* scales = operand.scales + batch * operand.scale_batch_stride;
  switch (operand.granularity) {
    case Granularity::kNone:
      return;
    case Granularity::kPerTensor:
    case Granularity::kPerRow: {
      const double scale = scales[operand.granularity == Granularity::kPerRow ? row : 0];
      for (double& value : out) value *= scale;
      return;
    }
    case Granularity::kBlock1x128:
    case Granularity::kBlock128x128: {
      const int64_t scale_row =
          operand.granularity == Granularity::kBlock1x128 ? row : row / kBlock;
      const float* row_scales = scales + scale_row * Blocks(operand.k);
      for (int64_t j = 0; j < operand.k; ++j) out[j] *= row_scales[j / kBlock];
      return;
    }
  }
}

}  // namespace gemmd::cli
