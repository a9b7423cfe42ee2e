#include "tests/kernels/contract/matmul_check.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "kernels/cpu/matmul/reference.h"

namespace gemmd::kernels::contract {
namespace {

// The Frobenius norm of [|a_ik * b_jk|] over all i, j, k.
double NormOfProducts(const MatmulOp& op, const Bindings& bindings) {
  const std::vector<double> a = Dequantize(op.a, bindings);
  const std::vector<double> b = Dequantize(op.b, bindings);
  const Dims& shape = op.a.values.shape;
  const int64_t k = shape[shape.rank - 1];
  if (k == 0 || a.empty() || b.empty()) return 0;
  std::vector<double> a_squares(k, 0.0), b_squares(k, 0.0);
  for (size_t i = 0; i < a.size(); ++i) a_squares[i % k] += a[i] * a[i];
  for (size_t i = 0; i < b.size(); ++i) b_squares[i % k] += b[i] * b[i];
  // Items of a batch multiply only their own partner: on average 1/batch of all pairs.
  const double pairs = shape.rank == 3 && op.b.values.shape.rank == 3 ? shape[0] : 1;
  double sum = 0;
  for (int64_t x = 0; x < k; ++x) sum += a_squares[x] * b_squares[x];
  return std::sqrt(sum / pairs);
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

std::string ToString(const MatmulCase& c) {
  std::ostringstream text;
  text << "m=" << c.m << " n=" << c.n << " k=" << c.k << " batch=" << c.batch
       << (c.shared_b ? " shared b" : "") << " " << Name(c.dtype) << " -> " << Name(c.out)
       << " scales " << Name(c.a_granularity) << ", " << Name(c.b_granularity) << " placed "
       << Name(c.a) << ", " << Name(c.b) << ", " << Name(c.d);
  return text.str();
}

MatmulOp MakeMatmul(Scene& scene, const MatmulCase& c) {
  const bool batched = c.batch > 0;
  const auto dims = [&](int64_t rows, int64_t cols, bool with_batch) {
    return with_batch ? MakeDims({c.batch, rows, cols}) : MakeDims({rows, cols});
  };
  MatmulOp op;
  op.a = scene.RandomOperand(c.dtype, dims(c.m, c.k, batched), c.a_granularity, c.a);
  op.b = scene.RandomOperand(c.dtype, dims(c.n, c.k, batched && !c.shared_b), c.b_granularity, c.b);
  op.d = scene.Poisoned(c.out, dims(c.m, c.n, batched), c.d);
  op.alpha = AlphaWithin(c.out, c.dtype);
  return op;
}

float AlphaWithin(DType out, DType operand) {
  const bool large = operand == DType::kE4M3 || operand == DType::kI8;
  return out == DType::kF16 && large ? 1.0f / (1 << 16) : 1.0f;
}

double Bound(const MatmulOp& op, std::string_view kernel) {
  if (op.d.dtype == DType::kBF16) return 5e-3;
  if (op.d.dtype == DType::kF16 || kernel.starts_with("sm90_fp8")) return 1e-3;
  return op.a.values.dtype == DType::kI8 ? 1e-6 : 1e-5;
}

double Error(Scene& scene, const Outcome& outcome, const MatmulOp& op) {
  const Bindings bindings = scene.Reference();
  const std::vector<double> expected = ReferenceMatmul(op, bindings);
  std::vector<double> difference = Values(outcome, op.d);
  for (size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
  double scale = std::abs(op.alpha) * NormOfProducts(op, bindings);
  if (op.c) scale += std::abs(op.beta) * Norm(ReadTensor(*op.c, bindings));
  if (op.bias) scale += Norm(ReadTensor(*op.bias, bindings));
  // A square is off by what is squared is off, times twice that.
  if (op.activation == Activation::kReluSquared && !expected.empty()) {
    scale *= 2 * std::sqrt(*std::max_element(expected.begin(), expected.end()));
  }
  const double error = Norm(difference);
  return error == 0 ? 0 : error / std::max(Norm(expected), scale);
}

Outcome ExpectMatchesReference(Executor& executor, Scene& scene, const MatmulOp& op) {
  Outcome outcome = scene.Run(executor, Op(op));
  const std::string kernel = outcome.kernels.empty() ? "?" : outcome.kernels[0];
  EXPECT_LT(Error(scene, outcome, op), Bound(op, kernel))
      << "seed " << scene.seed() << ", kernel " << kernel;
  ExpectOnlyElementsWritten(scene, outcome, op.d);
  return outcome;
}

void CheckCase(Executor& executor, Scene& scene, const MatmulCase& c) {
  SCOPED_TRACE(ToString(c));
  ExpectMatchesReference(executor, scene, MakeMatmul(scene, c));
}

}  // namespace gemmd::kernels::contract
