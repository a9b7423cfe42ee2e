#include "kernels/cpu/matmul/gated_matmul.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/ops/run_op.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kProductFloats = 1 << 20;  // of a product that waits for its gate

// Rows [first, first + rows) of item `item`, if the tensor has items, as a matrix. Of scales by
// block of 128 rows, `first` is a multiple of those.
TensorRef Rows(TensorRef tensor, int64_t item, int64_t first, int64_t rows) {
  const int64_t size = SizeBytes(tensor.dtype);
  if (tensor.shape.rank == 3) {
    tensor.offset_bytes += item * tensor.strides[0] * size;
    for (int i = 0; i < 2; ++i) {
      tensor.shape[i] = tensor.shape[i + 1];
      tensor.strides[i] = tensor.strides[i + 1];
    }
    tensor.shape.rank = tensor.strides.rank = 2;
  }
  tensor.offset_bytes += first * tensor.strides[0] * size;
  tensor.shape[0] = rows;
  return tensor;
}

// One item's scales, of all its rows.
TensorRef ItemOfScales(TensorRef scales, int64_t item) {
  if (scales.shape.rank == 1 && scales.shape[0] == 1) return scales;  // all items share it
  scales.offset_bytes += item * scales.strides[0] * SizeBytes(scales.dtype);
  for (int i = 1; i < scales.shape.rank; ++i) {
    scales.shape[i - 1] = scales.shape[i];
    scales.strides[i - 1] = scales.strides[i];
  }
  --scales.shape.rank;
  --scales.strides.rank;
  return scales;
}

Operand RowsOf(const Operand& a, int64_t item, int64_t first, int64_t rows) {
  Operand part = a;
  part.values = Rows(a.values, item, first, rows);
  if (!a.scales) return part;
  TensorRef& scales = *part.scales;
  if (a.values.shape.rank == 3) scales = ItemOfScales(scales, item);
  const bool by_row =
      a.granularity == ScaleGranularity::kPerRow || a.granularity == ScaleGranularity::kBlock1x128;
  const bool by_block = a.granularity == ScaleGranularity::kBlock128x128;
  if (!by_row && !by_block) return part;
  const int64_t step = by_block ? kScaleBlock : 1;
  scales.offset_bytes += first / step * scales.strides[0] * SizeBytes(scales.dtype);
  scales.shape[0] = (rows + step - 1) / step;
  return part;
}

Operand MatrixOf(const Operand& b, int64_t item) {
  Operand one = b;
  if (b.values.shape.rank != 3) return one;
  one.values = Rows(b.values, item, 0, b.values.shape[1]);
  if (b.scales) one.scales = ItemOfScales(*b.scales, item);
  return one;
}

}  // namespace

void RunGatedMatmul(const MatmulOp& op, const MatmulKernel& kernel, const RunContext& context) {
  const Dims& a = op.a.values.shape;
  const Dims& b = op.b.values.shape;
  const int64_t items = a.rank == 3 ? a[0] : 1, m = a[a.rank - 2], n = b[b.rank - 2];
  // Whole blocks of rows: scales of 128x128 keep to them.
  const int64_t wanted = std::max<int64_t>(kProductFloats / n / kScaleBlock, 1) * kScaleBlock;
  const int64_t most = std::min(wanted, m);
  std::vector<float> product(static_cast<size_t>(most * n));
  Bindings bindings;
  bindings.slots = context.bindings.slots;
  bindings.slots.push_back(reinterpret_cast<std::byte*>(product.data()));
  const RunContext with_product{bindings, context.workers, context.scratch, context.watch,
                                context.faults};
  for (int64_t item = 0; item < items; ++item) {
    for (int64_t first = 0; first < m && !context.Stopped(); first += most) {
      const int64_t rows = std::min(most, m - first);
      MatmulOp part = op;
      part.a = RowsOf(op.a, item, first, rows);
      part.b = MatrixOf(op.b, item);
      part = ProductOf(part, DType::kF32, static_cast<int>(bindings.slots.size()) - 1);
      kernel.run({part, ProblemOf(part), with_product});
      std::optional<TensorRef> scales;
      if (op.d_scales) scales = Rows(*op.d_scales, item, first, rows);
      RunOp(GatedOf(*op.gate, part.d, Rows(op.d, item, first, rows), scales), with_product);
    }
  }
}

}  // namespace gemmd::kernels::cpu
