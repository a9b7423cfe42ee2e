#include "kernels/cuda/args/op_args.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/ops/convert.h"

namespace gemmd::kernels::cuda {
namespace {

static_assert(static_cast<int>(ElementType::kF32) == static_cast<int>(DType::kF32));
static_assert(static_cast<int>(ElementType::kBF16) == static_cast<int>(DType::kBF16));
static_assert(static_cast<int>(ElementType::kF16) == static_cast<int>(DType::kF16));
static_assert(static_cast<int>(ElementType::kE4M3) == static_cast<int>(DType::kE4M3));
static_assert(static_cast<int>(ElementType::kI8) == static_cast<int>(DType::kI8));
static_assert(static_cast<int>(ElementType::kE5M2) == static_cast<int>(DType::kE5M2));
static_assert(static_cast<int>(ActivationType::kRelu) == static_cast<int>(Activation::kRelu));
static_assert(static_cast<int>(ActivationType::kSilu) == static_cast<int>(Activation::kSilu));
static_assert(static_cast<int>(ActivationType::kGeluTanh) ==
              static_cast<int>(Activation::kGeluTanh));
static_assert(static_cast<int>(ActivationType::kGeluErf) == static_cast<int>(Activation::kGeluErf));
static_assert(static_cast<int>(ActivationType::kReluSquared) ==
              static_cast<int>(Activation::kReluSquared));
static_assert(kElementwiseRank == kMaxRank);

// Numbers are moved as the bits of FP32: types that are the same on both sides copy them.
ElementType TypeOf(DType dtype) {
  return dtype == DType::kI32 ? ElementType::kF32 : static_cast<ElementType>(dtype);
}

std::byte* AddressOf(const TensorRef& tensor, SlotAddresses slots) {
  return slots[tensor.slot] + tensor.offset_bytes;
}

// A matrix's extents and strides, with a batch of 1 where it has none.
struct Matrix {
  explicit Matrix(const TensorRef& tensor) {
    const int r = tensor.shape.rank;
    rows = tensor.shape[r - 2];
    cols = tensor.shape[r - 1];
    row_stride = tensor.strides[r - 2];
    col_stride = tensor.strides[r - 1];
    if (r == 3) {
      batch = tensor.shape[0];
      batch_stride = tensor.strides[0];
    }
  }
  int64_t batch = 1;
  int64_t rows, cols;
  int64_t batch_stride = 0;
  int64_t row_stride, col_stride;
};

// Scales of any granularity; `batched` as their operand is.
ScaleView ViewOf(const TensorRef& scales, ScaleGranularity granularity, bool batched,
                 SlotAddresses slots) {
  ScaleView view;
  view.data = reinterpret_cast<const float*>(AddressOf(scales, slots));
  const int first = batched ? 1 : 0;
  const bool shared = granularity == ScaleGranularity::kPerTensor && scales.shape.rank == 1;
  if (batched && !shared) view.batch_stride = scales.strides[0];
  if (granularity == ScaleGranularity::kPerTensor) return view;
  view.row_stride = scales.strides[first];
  view.row_blocks = granularity == ScaleGranularity::kBlock128x128;
  if (granularity != ScaleGranularity::kPerRow) view.k_stride = scales.strides[first + 1];
  return view;
}

AnyOperand OperandOf(const Operand& operand, SlotAddresses slots) {
  const Matrix matrix(operand.values);
  AnyOperand out;
  out.data = AddressOf(operand.values, slots);
  out.batch_stride = matrix.batch_stride;
  out.row_stride = matrix.row_stride;
  out.k_stride = matrix.col_stride;
  if (operand.scales) {
    out.scales =
        ViewOf(*operand.scales, operand.granularity, operand.values.shape.rank == 3, slots);
  }
  return out;
}

AnyResult ResultOf(const TensorRef& tensor, SlotAddresses slots) {
  const Matrix matrix(tensor);
  return {AddressOf(tensor, slots), matrix.batch_stride, matrix.row_stride, matrix.col_stride};
}

// Extents or strides with leading ones or zeros up to rank 3.
void Pad(const Dims& dims, int64_t lead, int64_t (&out)[kElementwiseRank]) {
  std::fill_n(out, kElementwiseRank, lead);
  for (int i = 0; i < dims.rank; ++i) out[kElementwiseRank - dims.rank + i] = dims[i];
}

ConvertArgs MoveOf(const Dims& shape, const std::byte* src, DType src_type, const Dims& src_strides,
                   std::byte* dst, DType dst_type, const Dims& dst_strides) {
  ConvertArgs args;
  args.src = src;
  args.src_type = TypeOf(src_type);
  args.dst = dst;
  args.dst_type = TypeOf(dst_type);
  Pad(shape, 1, args.shape);
  Pad(src_strides, 0, args.src_stride);
  Pad(dst_strides, 0, args.dst_stride);
  return args;
}

// What a pass over rows says alike, whatever it computes: src, dst and the scales of 1x128.
template <class Args, class PassOp>
Args ArgsOfPass(const PassOp& op, SlotAddresses slots) {
  const Matrix src(op.src);
  const Matrix dst(op.dst);
  Args args;
  args.batch = dst.batch;
  args.rows = dst.rows;
  args.n = dst.cols;
  args.src = AddressOf(op.src, slots);
  args.src_type = TypeOf(op.src.dtype);
  args.src_batch = src.batch_stride;
  args.src_row = src.row_stride;
  args.src_col = src.col_stride;
  args.dst = AddressOf(op.dst, slots);
  args.dst_type = TypeOf(op.dst.dtype);
  args.dst_batch = dst.batch_stride;
  args.dst_row = dst.row_stride;
  args.dst_col = dst.col_stride;
  if (op.scales) {
    const ScaleView scales =
        ViewOf(*op.scales, ScaleGranularity::kBlock1x128, op.src.shape.rank == 3, slots);
    args.scales = reinterpret_cast<float*>(AddressOf(*op.scales, slots));
    args.scales_batch = scales.batch_stride;
    args.scales_row = scales.row_stride;
    args.scales_block = scales.k_stride;
  }
  return args;
}

}  // namespace

AnyGemmArgs ArgsOf(const MatmulOp& op, SlotAddresses slots) {
  const Matrix a(op.a.values);
  AnyGemmArgs args;
  args.batch = a.batch;
  args.m = a.rows;
  args.n = Matrix(op.b.values).rows;
  args.k = a.cols;
  args.type = TypeOf(op.a.values.dtype);
  args.b_type = TypeOf(op.b.values.dtype);
  args.a = OperandOf(op.a, slots);
  args.b = OperandOf(op.b, slots);
  args.out = TypeOf(op.d.dtype);
  args.d = ResultOf(op.d, slots);
  if (op.c) args.c = ResultOf(*op.c, slots);
  if (op.bias) {
    args.bias = AddressOf(*op.bias, slots);
    args.bias_stride = op.bias->strides[0];
    args.bias_type = TypeOf(op.bias->dtype);
  }
  args.alpha = op.alpha;
  args.beta = op.beta;
  args.activation = static_cast<ActivationType>(op.activation);
  return args;
}

QuantizeArgs ArgsOf(const QuantizeOp& op, SlotAddresses slots) {
  const Matrix src(op.src);
  const Matrix dst(op.dst);
  const ScaleView scales = ViewOf(op.scales, op.granularity, op.src.shape.rank == 3, slots);
  QuantizeArgs args;
  args.batch = src.batch;
  args.rows = src.rows;
  args.k = src.cols;
  args.src = AddressOf(op.src, slots);
  args.src_type = TypeOf(op.src.dtype);
  args.src_batch = src.batch_stride;
  args.src_row = src.row_stride;
  args.src_k = src.col_stride;
  args.dst = AddressOf(op.dst, slots);
  args.dst_type = TypeOf(op.dst.dtype);
  args.dst_batch = dst.batch_stride;
  args.dst_row = dst.row_stride;
  args.dst_k = dst.col_stride;
  args.scales = reinterpret_cast<float*>(AddressOf(op.scales, slots));
  args.scales_batch = scales.batch_stride;
  args.scales_row = scales.row_stride;
  args.scales_k = scales.k_stride;
  args.rows = dst.rows;
  if (op.rows) {
    args.from = reinterpret_cast<const int32_t*>(AddressOf(*op.rows, slots));
    args.src_rows = src.rows;
  }
  switch (op.granularity) {
    case ScaleGranularity::kNone:  // refused by ValidateOps
    case ScaleGranularity::kPerTensor:
      args.block = QuantizeBlock::kTensor;
      break;
    case ScaleGranularity::kPerRow:
      args.block = QuantizeBlock::kRow;
      break;
    case ScaleGranularity::kBlock1x128:
      args.block = QuantizeBlock::k1x128;
      break;
    case ScaleGranularity::kBlock128x128:
      args.block = QuantizeBlock::k128x128;
      break;
  }
  return args;
}

GatedArgs ArgsOf(const GatedOp& op, SlotAddresses slots) {
  auto args = ArgsOfPass<GatedArgs>(op, slots);
  args.period = op.period == 0 ? args.n : op.period;
  args.alone = op.alone;
  args.activation = static_cast<ActivationType>(op.activation);
  args.alpha = op.alpha;
  args.limit = op.limit;
  args.up_offset = op.up_offset;
  return args;
}

ConvertArgs ArgsOf(const ConvertOp& op, SlotAddresses slots) {
  return MoveOf(op.src.shape, AddressOf(op.src, slots), op.src.dtype, op.src.strides,
                AddressOf(op.dst, slots), op.dst.dtype, op.dst.strides);
}

ConvertArgs ArgsOf(const CopyOp& op, SlotAddresses slots) {
  return ArgsOf(ConvertOp{op.src, op.dst}, slots);
}

FillArgs ArgsOf(const FillOp& op, SlotAddresses slots) {
  FillArgs args;
  args.dst = AddressOf(op.dst, slots);
  args.type = TypeOf(op.dst.dtype);
  Pad(op.dst.shape, 1, args.shape);
  Pad(op.dst.strides, 0, args.dst_stride);
  std::byte code[4] = {};
  cpu::FromDouble(op.dst.dtype, op.value, code);
  std::memcpy(&args.code, code, sizeof(code));
  return args;
}

ChooseArgs ArgsOf(const ChooseOp& op, SlotAddresses slots) {
  ChooseArgs args;
  args.logits = AddressOf(op.logits, slots);
  args.logits_type = TypeOf(op.logits.dtype);
  args.logits_row = op.logits.strides[0];
  args.logits_col = op.logits.strides[1];
  if (op.bias) {
    args.bias = reinterpret_cast<const float*>(AddressOf(*op.bias, slots));
    args.bias_stride = op.bias->strides[0];
  }
  args.chosen = reinterpret_cast<int32_t*>(AddressOf(op.experts, slots));
  args.chosen_row = op.experts.strides[0];
  args.weights = reinterpret_cast<float*>(AddressOf(op.weights, slots));
  args.weights_row = op.weights.strides[0];
  args.weights_col = op.weights.strides[1];
  args.tokens = op.logits.shape[0];
  args.experts = static_cast<int32_t>(op.logits.shape[1]);
  args.top_k = static_cast<int32_t>(op.experts.shape[1]);
  args.sigmoid = op.scores == RouterScores::kSigmoid;
  args.renormalize = op.renormalize;
  args.scale = op.scale;
  args.groups = static_cast<int32_t>(op.groups);
  args.top_groups = static_cast<int32_t>(op.top_groups);
  args.sums_two = op.group_score == GroupScore::kTop2Sum;
  return args;
}

RouteArgs ArgsOf(const RouteOp& op, SlotAddresses slots) {
  const auto numbers = [&](const TensorRef& tensor) {
    return reinterpret_cast<int32_t*>(AddressOf(tensor, slots));
  };
  RouteArgs args;
  args.ids = numbers(op.ids);
  args.ids_row = op.ids.strides[0];
  args.offsets = numbers(op.offsets);
  args.rows = numbers(op.rows);
  args.positions = numbers(op.positions);
  args.positions_row = op.positions.strides[0];
  args.tokens = static_cast<int32_t>(op.ids.shape[0]);
  args.top_k = static_cast<int32_t>(op.ids.shape[1]);
  args.experts = static_cast<int32_t>(op.offsets.shape[0] - 1);
  return args;
}

CombineArgs ArgsOf(const CombineOp& op, SlotAddresses slots) {
  const Matrix src(op.src);
  const Matrix dst(op.dst);
  CombineArgs args;
  args.src = AddressOf(op.src, slots);
  args.src_type = TypeOf(op.src.dtype);
  args.src_rows = src.rows;
  args.src_row = src.row_stride;
  args.src_col = src.col_stride;
  args.positions = reinterpret_cast<const int32_t*>(AddressOf(op.positions, slots));
  args.positions_row = op.positions.strides[0];
  args.weights = reinterpret_cast<const float*>(AddressOf(op.weights, slots));
  args.weights_row = op.weights.strides[0];
  args.weights_col = op.weights.strides[1];
  args.dst = AddressOf(op.dst, slots);
  args.dst_type = TypeOf(op.dst.dtype);
  args.dst_row = dst.row_stride;
  args.dst_col = dst.col_stride;
  args.tokens = dst.rows;
  args.n = dst.cols;
  args.top_k = static_cast<int32_t>(op.positions.shape[1]);
  return args;
}

NormalizeArgs ArgsOf(const NormalizeOp& op, SlotAddresses slots) {
  auto args = ArgsOfPass<NormalizeArgs>(op, slots);
  if (op.addend) {
    const Matrix addend(*op.addend);
    args.addend = AddressOf(*op.addend, slots);
    args.addend_batch = addend.batch_stride;
    args.addend_row = addend.row_stride;
    args.addend_col = addend.col_stride;
  }
  if (op.sum) {
    const Matrix sum(*op.sum);
    args.sum = AddressOf(*op.sum, slots);
    args.sum_batch = sum.batch_stride;
    args.sum_row = sum.row_stride;
    args.sum_col = sum.col_stride;
  }
  if (op.weight) {
    args.weight = reinterpret_cast<const float*>(AddressOf(*op.weight, slots));
    args.weight_stride = op.weight->strides[0];
  }
  if (op.bias) {
    args.bias = reinterpret_cast<const float*>(AddressOf(*op.bias, slots));
    args.bias_stride = op.bias->strides[0];
  }
  args.epsilon = op.epsilon;
  args.centered = op.centered;
  return args;
}

AnyGemmArgs ArgsOf(const GroupedMatmulOp& op, SlotAddresses slots) {
  MatmulOp matmul;
  matmul.a = op.a;
  matmul.b = op.b;
  matmul.d = op.d;
  matmul.alpha = op.alpha;
  matmul.activation = op.activation;
  return ArgsOf(matmul, slots);
}

ConvertArgs FromDense(const std::byte* bytes, const TensorRef& dst, SlotAddresses slots) {
  return MoveOf(dst.shape, bytes, dst.dtype, RowMajorStrides(dst.shape), AddressOf(dst, slots),
                dst.dtype, dst.strides);
}

ConvertArgs ToDense(const TensorRef& src, std::byte* bytes, SlotAddresses slots) {
  return MoveOf(src.shape, AddressOf(src, slots), src.dtype, src.strides, bytes, src.dtype,
                RowMajorStrides(src.shape));
}

}  // namespace gemmd::kernels::cuda
