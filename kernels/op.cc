#include "kernels/op.h"

#include <algorithm>
#include <string_view>

namespace gemmd::kernels {
namespace {

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

int64_t CeilDiv(int64_t value, int64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

// `items` of it, all the same memory. Of full rank it stays what it is.
TensorRef Repeated(TensorRef tensor, int64_t items) {
  if (tensor.shape.rank >= kMaxRank) return tensor;
  for (int i = tensor.shape.rank; i > 0; --i) {
    tensor.shape[i] = tensor.shape[i - 1];
    tensor.strides[i] = tensor.strides[i - 1];
  }
  tensor.shape[0] = items;
  tensor.strides[0] = 0;
  ++tensor.shape.rank;
  ++tensor.strides.rank;
  return tensor;
}

double SizeOf(const TensorRef& tensor) {
  double bytes = SizeBytes(tensor.dtype);
  for (int i = 0; i < tensor.shape.rank; ++i) bytes *= static_cast<double>(tensor.shape[i]);
  return bytes;
}

}  // namespace

std::string_view Name(ScaleGranularity granularity) {
  switch (granularity) {
    case ScaleGranularity::kNone:
      return "none";
    case ScaleGranularity::kPerTensor:
      return "tensor";
    case ScaleGranularity::kPerRow:
      return "row";
    case ScaleGranularity::kBlock1x128:
      return "1x128";
    case ScaleGranularity::kBlock128x128:
      return "128x128";
  }
  return "unknown";
}

std::string_view Name(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "none";
    case Activation::kRelu:
      return "relu";
    case Activation::kSilu:
      return "silu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kGeluErf:
      return "gelu_erf";
  }
  return "unknown";
}

std::string_view Name(GroupLayout layout) {
  switch (layout) {
    case GroupLayout::kOffsets:
      return "offsets";
    case GroupLayout::kCounts:
      return "counts";
    case GroupLayout::kRowIds:
      return "row_ids";
    case GroupLayout::kEnds:
      return "ends";
  }
  return "unknown";
}

Dims ScaleShape(const Dims& shape, ScaleGranularity granularity) {
  Dims scales;
  if (granularity == ScaleGranularity::kNone || shape.rank < 2) return scales;
  const int64_t rows = shape[shape.rank - 2];
  const int64_t blocks = CeilDiv(shape[shape.rank - 1], kScaleBlock);
  const auto push = [&scales](int64_t extent) { scales[scales.rank++] = extent; };
  if (shape.rank == 3) push(shape[0]);
  switch (granularity) {
    case ScaleGranularity::kNone:
      break;
    case ScaleGranularity::kPerTensor:
      push(1);
      break;
    case ScaleGranularity::kPerRow:
      push(rows);
      break;
    case ScaleGranularity::kBlock1x128:
      push(rows);
      push(blocks);
      break;
    case ScaleGranularity::kBlock128x128:
      push(CeilDiv(rows, kScaleBlock));
      push(blocks);
      break;
  }
  return scales;
}

Operand StackOf(const Operand& matrix, int64_t groups) {
  Operand stack = matrix;
  stack.values = Repeated(matrix.values, groups);
  if (matrix.scales) stack.scales = Repeated(*matrix.scales, groups);
  return stack;
}

Operand MatrixOf(const GroupedMatmulOp& op, int64_t group) {
  if (!op.table.empty()) return op.table[group];
  Operand one = op.b;
  one.values = ItemOf(op.b.values, group);
  // Scales of one for all groups are [1].
  if (op.b.scales && op.b.scales->shape.rank > 1) one.scales = ItemOf(*op.b.scales, group);
  return one;
}

std::string_view Name(const Op& op) {
  // By the variant's index: one row per alternative, in its order.
  constexpr std::string_view kNames[] = {
      "matmul", "quantize", "gated",          "convert", "copy",    "fill",
      "write",  "read",     "grouped_matmul", "route",   "combine", "k_grouped_matmul"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>, "one name per op");
  return kNames[op.index()];
}

void ForEachTensor(const Op& op, absl::FunctionRef<void(const TensorRef&, Access)> fn) {
  std::visit(Overload{[&](const MatmulOp& matmul) {
                        fn(matmul.a.values, Access::kRead);
                        if (matmul.a.scales) fn(*matmul.a.scales, Access::kRead);
                        fn(matmul.b.values, Access::kRead);
                        if (matmul.b.scales) fn(*matmul.b.scales, Access::kRead);
                        if (matmul.c) fn(*matmul.c, Access::kRead);
                        if (matmul.bias) fn(*matmul.bias, Access::kRead);
                        fn(matmul.d, Access::kWrite);
                        if (matmul.d_scales) fn(*matmul.d_scales, Access::kWrite);
                      },
                      [&](const QuantizeOp& quantize) {
                        fn(quantize.src, Access::kRead);
                        if (quantize.rows) fn(*quantize.rows, Access::kRead);
                        fn(quantize.dst, Access::kWrite);
                        fn(quantize.scales, Access::kWrite);
                      },
                      [&](const GatedOp& gated) {
                        fn(gated.src, Access::kRead);
                        fn(gated.dst, Access::kWrite);
                        if (gated.scales) fn(*gated.scales, Access::kWrite);
                      },
                      [&](const ConvertOp& convert) {
                        fn(convert.src, Access::kRead);
                        fn(convert.dst, Access::kWrite);
                      },
                      [&](const CopyOp& copy) {
                        fn(copy.src, Access::kRead);
                        fn(copy.dst, Access::kWrite);
                      },
                      [&](const FillOp& fill) { fn(fill.dst, Access::kWrite); },
                      [&](const WriteOp& write) { fn(write.dst, Access::kWrite); },
                      [&](const ReadOp& read) { fn(read.src, Access::kRead); },
                      [&](const GroupedMatmulOp& grouped) {
                        fn(grouped.a.values, Access::kRead);
                        if (grouped.a.scales) fn(*grouped.a.scales, Access::kRead);
                        const absl::Span<const Operand> matrices =
                            grouped.table.empty() ? absl::MakeConstSpan(&grouped.b, 1)
                                                  : absl::MakeConstSpan(grouped.table);
                        for (const Operand& b : matrices) {
                          fn(b.values, Access::kRead);
                          if (b.scales) fn(*b.scales, Access::kRead);
                        }
                        fn(grouped.groups, Access::kRead);
                        if (grouped.bias) fn(*grouped.bias, Access::kRead);
                        fn(grouped.d, Access::kWrite);
                        if (grouped.d_scales) fn(*grouped.d_scales, Access::kWrite);
                      },
                      [&](const RouteOp& route) {
                        fn(route.ids, Access::kRead);
                        fn(route.offsets, Access::kWrite);
                        fn(route.rows, Access::kWrite);
                        fn(route.positions, Access::kWrite);
                      },
                      [&](const CombineOp& combine) {
                        fn(combine.src, Access::kRead);
                        fn(combine.positions, Access::kRead);
                        fn(combine.weights, Access::kRead);
                        fn(combine.dst, Access::kWrite);
                      },
                      [&](const KGroupedMatmulOp& grouped) {
                        for (const Operand* operand : {&grouped.a, &grouped.b}) {
                          fn(operand->values, Access::kRead);
                          if (operand->scales) fn(*operand->scales, Access::kRead);
                        }
                        fn(grouped.groups, Access::kRead);
                        if (grouped.c) fn(*grouped.c, Access::kRead);
                        fn(grouped.d, Access::kWrite);
                      }},
             op);
}

MatmulOp ProductOf(const MatmulOp& op, DType dtype, int slot) {
  MatmulOp product = op;
  product.gate.reset();
  product.d_scales.reset();
  const Dims& b = op.b.values.shape;
  product.d = {.slot = slot, .dtype = dtype, .shape = op.a.values.shape};
  product.d.shape[product.d.shape.rank - 1] = b[b.rank - 2];
  product.d.strides = RowMajorStrides(product.d.shape);
  return product;
}

GatedOp GatedOf(const Gate& gate, const TensorRef& product, const TensorRef& d,
                const std::optional<TensorRef>& d_scales) {
  GatedOp gated{.src = product, .dst = d, .scales = d_scales};
  gated.activation = gate.activation;
  gated.period = gate.period;
  gated.alpha = gate.alpha;
  gated.limit = gate.limit;
  gated.up_offset = gate.up_offset;
  return gated;
}

double Flops(const Op& op) {
  if (const auto* grouped = std::get_if<GroupedMatmulOp>(&op)) {
    const Dims& b = grouped->b.values.shape;
    return 2.0 * static_cast<double>(ExpectedRows(*grouped)) * static_cast<double>(b[1]) *
           static_cast<double>(b[2]);
  }
  if (const auto* along_k = std::get_if<KGroupedMatmulOp>(&op)) {
    const Dims& a = along_k->a.values.shape;
    return 2.0 * static_cast<double>(a[0]) * static_cast<double>(a[1]) *
           static_cast<double>(along_k->b.values.shape[0]);
  }
  const auto* matmul = std::get_if<MatmulOp>(&op);
  if (matmul == nullptr) return 0;
  double flops = 2;
  const Dims& a = matmul->a.values.shape;
  const Dims& b = matmul->b.values.shape;
  for (int i = 0; i < a.rank; ++i) flops *= static_cast<double>(a[i]);
  return b.rank >= 2 ? flops * static_cast<double>(b[b.rank - 2]) : 0;
}

int64_t ExpectedRows(const GroupedMatmulOp& op) {
  const Dims& a = op.a.values.shape;
  const int64_t all = a.rank == 3 ? a[0] * a[1] : a[0];
  return op.expected_rows > 0 ? std::min(op.expected_rows, all) : all;
}

double Bytes(const Op& op) {
  double bytes = 0;
  ForEachTensor(op, [&](const TensorRef& tensor, Access) { bytes += SizeOf(tensor); });
  const auto* matmul = std::get_if<MatmulOp>(&op);
  // beta = 0 does not read c.
  if (matmul != nullptr && matmul->c && matmul->beta == 0) bytes -= SizeOf(*matmul->c);
  const auto* along_k = std::get_if<KGroupedMatmulOp>(&op);
  if (along_k != nullptr && along_k->c && along_k->beta == 0) bytes -= SizeOf(*along_k->c);
  // Inline data move once more, on the host's side of the copy.
  if (std::holds_alternative<WriteOp>(op) || std::holds_alternative<ReadOp>(op)) bytes *= 2;
  return bytes;
}

}  // namespace gemmd::kernels
