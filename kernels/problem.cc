#include "kernels/problem.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/text.h"

namespace gemmd::kernels {
namespace {

// The two innermost dimensions of a validated tensor, and its batch.
struct Matrix {
  int64_t batch, rows, cols;
  int64_t batch_stride, row_stride, col_stride;
};

Matrix MatrixOf(const TensorRef& tensor) {
  const int r = tensor.shape.rank;
  const bool batched = r == 3;
  return {batched ? tensor.shape[0] : 1,   tensor.shape[r - 2],   tensor.shape[r - 1],
          batched ? tensor.strides[0] : 0, tensor.strides[r - 2], tensor.strides[r - 1]};
}

// Largest power of two, at most 256, that divides all of `bytes`; slots start on 256 bytes.
int Alignment(std::initializer_list<int64_t> bytes) {
  int64_t bits = 256;
  for (int64_t value : bytes) bits |= value;
  return static_cast<int>(bits & -bits);
}

// Of `batch` matrices, or of the one that all of them are.
OperandTraits TraitsOf(const TensorRef& tensor, int64_t batch) {
  const Matrix matrix = MatrixOf(tensor);
  OperandTraits traits;
  traits.dtype = tensor.dtype;
  // The stride of an extent of 1 says nothing; it must not turn a vector into a strided matrix.
  if (matrix.col_stride == 1 || matrix.cols <= 1) {
    traits.layout = Layout::kKContiguous;
    traits.leading_stride = matrix.rows > 1 ? matrix.row_stride : std::max<int64_t>(matrix.cols, 1);
  } else if (matrix.row_stride == 1 || matrix.rows <= 1) {
    traits.layout = Layout::kRowsContiguous;
    traits.leading_stride = matrix.col_stride;
  } else {
    traits.layout = Layout::kStrided;
    traits.leading_stride = matrix.row_stride;
  }
  const int64_t size = SizeBytes(tensor.dtype);
  const bool one_line = (traits.layout == Layout::kRowsContiguous ? matrix.cols : matrix.rows) <= 1;
  traits.alignment_bytes =
      Alignment({tensor.offset_bytes, one_line ? 0 : traits.leading_stride * size,
                 matrix.batch > 1 ? matrix.batch_stride * size : 0});
  const int64_t lines = traits.layout == Layout::kRowsContiguous ? matrix.cols : matrix.rows;
  if (batch > 1 && matrix.batch_stride != lines * traits.leading_stride) {
    traits.batch_stride = matrix.batch_stride;
  }
  return traits;
}

// `batched` as their operand is.
ScaleTraits TraitsOfScales(const TensorRef& scales, ScaleGranularity granularity, bool batched) {
  ScaleTraits traits;
  traits.alignment_bytes = Alignment({scales.offset_bytes});
  const int first = batched ? 1 : 0;
  const bool shared = granularity == ScaleGranularity::kPerTensor && scales.shape.rank == 1;
  if (batched && !shared && scales.shape[0] > 1) traits.batch_stride = scales.strides[0];
  if (granularity == ScaleGranularity::kPerTensor) return traits;
  traits.row_stride = scales.strides[first];
  if (granularity != ScaleGranularity::kPerRow) traits.k_stride = scales.strides[first + 1];
  return traits;
}

OperandTraits TraitsOf(const Operand& operand, int64_t batch) {
  OperandTraits traits = TraitsOf(operand.values, batch);
  traits.granularity = operand.granularity;
  if (operand.scales) {
    traits.scales =
        TraitsOfScales(*operand.scales, operand.granularity, operand.values.shape.rank == 3);
  }
  return traits;
}

double ScaleBytes(double batch, double rows, double k, ScaleGranularity granularity) {
  const double blocks = (k + kScaleBlock - 1) / kScaleBlock;
  switch (granularity) {
    case ScaleGranularity::kNone:
      return 0;
    case ScaleGranularity::kPerTensor:
      return 4 * batch;
    case ScaleGranularity::kPerRow:
      return 4 * batch * rows;
    case ScaleGranularity::kBlock1x128:
      return 4 * batch * rows * blocks;
    case ScaleGranularity::kBlock128x128:
      return 4 * batch * (rows + kScaleBlock - 1) / kScaleBlock * blocks;
  }
  return 0;
}

std::string OperandString(const OperandTraits& traits) {
  std::string text(Name(traits.dtype));
  if (traits.granularity != ScaleGranularity::kNone) {
    absl::StrAppend(&text, "/", Text(Name(traits.granularity)));
  }
  if (traits.layout == Layout::kRowsContiguous) absl::StrAppend(&text, ":rows");
  if (traits.layout == Layout::kStrided) absl::StrAppend(&text, ":strided");
  return text;
}

}  // namespace

double MatmulProblem::bytes() const {
  const double matrix_a = 1.0 * batch * m * k * SizeBytes(a.dtype);
  const double matrix_b = 1.0 * batch * n * k * SizeBytes(b.dtype);
  const double matrix_d = 1.0 * batch * m * d_cols() * SizeBytes(d.dtype) +
                          ScaleBytes(batch, m, d_cols(), d.granularity);
  return matrix_a + matrix_b + (has_c ? 2 : 1) * matrix_d + ScaleBytes(batch, m, k, a.granularity) +
         ScaleBytes(batch, n, k, b.granularity) + (has_bias ? 4.0 * n : 0);
}

void SetGate(const Gate& gate, MatmulProblem& problem) {
  problem.gate_alone = gate.alone;
  problem.gate_period = gate.alone ? problem.n : gate.period > 0 ? gate.period : problem.n / 2;
}

MatmulProblem ProblemOf(const MatmulOp& op) {
  const Matrix a = MatrixOf(op.a.values);
  MatmulProblem problem;
  problem.batch = a.batch;
  problem.m = a.rows;
  problem.n = MatrixOf(op.b.values).rows;
  problem.k = a.cols;
  problem.a = TraitsOf(op.a, a.batch);
  problem.b = TraitsOf(op.b, a.batch);
  problem.d = TraitsOf(op.d, a.batch);
  problem.has_c = op.c.has_value() && op.beta != 0;
  if (problem.has_c) problem.c = TraitsOf(*op.c, a.batch);
  problem.has_bias = op.bias.has_value();
  if (problem.has_bias && problem.n > 1) problem.bias_stride = op.bias->strides[0];
  problem.activation = op.activation;
  if (op.gate) SetGate(*op.gate, problem);
  if (op.d_scales) {
    problem.d.granularity = ScaleGranularity::kBlock1x128;
    problem.d.scales = TraitsOfScales(*op.d_scales, problem.d.granularity, op.d.shape.rank == 3);
  }
  problem.reads_operands = op.alpha != 0;
  return problem;
}

MatmulProblem ProductOf(const MatmulProblem& problem) {
  MatmulProblem product = problem;
  product.gate_period = 0;
  product.gate_alone = false;
  product.d = {.dtype = problem.d.dtype == DType::kF32 ? DType::kF32 : DType::kBF16};
  product.d.leading_stride = std::max<int64_t>(problem.n, 1);
  const int64_t row = product.d.leading_stride * SizeBytes(product.d.dtype);
  product.d.alignment_bytes =
      Alignment({problem.m > 1 ? row : 0, problem.batch > 1 ? problem.m * row : 0});
  return product;
}

std::string ToString(const MatmulProblem& problem) {
  std::string text;
  if (problem.batch != 1) absl::StrAppend(&text, "batch=", problem.batch, " ");
  absl::StrAppend(&text, "m=", problem.m, " n=", problem.n, " k=", problem.k,
                  " a=", OperandString(problem.a), " b=", OperandString(problem.b),
                  " d=", OperandString(problem.d));
  if (problem.has_c) absl::StrAppend(&text, " +c");
  if (problem.has_bias) absl::StrAppend(&text, " +bias");
  if (problem.activation != Activation::kNone) {
    absl::StrAppend(&text, " ", Text(Name(problem.activation)));
  }
  if (problem.gate_alone) {
    absl::StrAppend(&text, " gate alone");
  } else if (problem.gate_period > 0) {
    absl::StrAppend(&text, " gate/", problem.gate_period);
  }
  if (!problem.reads_operands) absl::StrAppend(&text, " alpha=0");
  return text;
}

}  // namespace gemmd::kernels
