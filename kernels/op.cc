#include "kernels/op.h"

#include <algorithm>
#include <string_view>

#include "kernels/op_fields.h"

namespace gemmd::kernels {
namespace {

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

// Of a field that names tensors, each of them.
struct TensorsOf {
  absl::FunctionRef<void(const TensorRef&)> fn;

  void operator()(const TensorRef& tensor) const { fn(tensor); }
  void operator()(const Operand& operand) const {
    fn(operand.values);
    (*this)(operand.scales);
  }
  void operator()(const std::optional<TensorRef>& tensor) const {
    if (tensor) fn(*tensor);
  }
  void operator()(absl::Span<const Operand> operands) const {
    for (const Operand& operand : operands) (*this)(operand);
  }
};

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
    case Activation::kReluSquared:
      return "relu_squared";
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

std::string_view Name(RouterScores scores) {
  switch (scores) {
    case RouterScores::kSoftmax:
      return "softmax";
    case RouterScores::kSigmoid:
      return "sigmoid";
  }
  return "unknown";
}

std::string_view Name(GroupScore score) {
  switch (score) {
    case GroupScore::kMax:
      return "max";
    case GroupScore::kTop2Sum:
      return "top2_sum";
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
  return std::visit([]<class T>(const T&) { return OpKind<T>::kName; }, op);
}

void ForEachTensor(const Op& op, absl::FunctionRef<void(const TensorRef&, Access)> fn) {
  const auto visit = [&]<Role role, class T>(const Field<role, T>& field) {
    if constexpr (role != Role::kSays) {
      constexpr Access kAccess = role == Role::kWrites ? Access::kWrite : Access::kRead;
      TensorsOf{[&](const TensorRef& tensor) { fn(tensor, kAccess); }}(field.value);
    }
  };
  std::visit([&](const auto& kind) { ForEachField(kind, visit); }, op);
}

bool ReadsNumbers(const Op& op) {
  bool reads = false;
  const auto visit = [&]<Role role, class T>(const Field<role, T>& field) {
    if constexpr (role == Role::kIndexes) {
      TensorsOf{[&](const TensorRef&) { reads = true; }}(field.value);
    }
  };
  std::visit([&](const auto& kind) { ForEachField(kind, visit); }, op);
  return reads;
}

const TensorRef& MainTensor(const Op& op) {
  const TensorRef* main = nullptr;
  ForEachTensor(op, [&](const TensorRef& tensor, Access) {
    if (main == nullptr) main = &tensor;
  });
  return std::visit(
      [&](const auto& kind) -> const TensorRef& {
        if constexpr (requires { kind.dst; }) return kind.dst;
        return *main;
      },
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
  gated.alone = gate.alone;
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
  std::visit(
      [&](const auto& kind) {
        // beta = 0 does not read c.
        if constexpr (requires { kind.beta; }) {
          if (kind.c && kind.beta == 0) bytes -= SizeOf(*kind.c);
        }
      },
      op);
  // Inline data move once more, on the host's side of the copy.
  if (std::holds_alternative<WriteOp>(op) || std::holds_alternative<ReadOp>(op)) bytes *= 2;
  return bytes;
}

}  // namespace gemmd::kernels
