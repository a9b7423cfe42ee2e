#include "tests/kernels/contract/normalize_check.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/cpu/matmul/reference.h"

namespace gemmd::kernels::contract {
namespace {

std::string ToString(const NormalizeOp& op) {
  return std::string(Name(op.src.dtype)) + " to " + std::string(Name(op.dst.dtype)) + " " +
         kernels::ToString(op.dst.shape) + (op.centered ? " centered" : "") +
         (op.weight ? " weight" : "") + (op.bias ? " bias" : "") + (op.addend ? " addend" : "") +
         (op.sum ? " sum in slot " + std::to_string(op.sum->slot) : "");
}

int64_t Columns(const NormalizeOp& op) { return op.dst.shape[op.dst.shape.rank - 1]; }

// What is normalised: src, or the sums as their type has them.
std::vector<double> Summands(const NormalizeOp& op, const Bindings& bindings) {
  std::vector<double> x = ReadTensor(op.src, bindings);
  if (!op.addend) return x;
  const std::vector<double> addend = ReadTensor(*op.addend, bindings);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = DecodeReference(op.src.dtype, EncodeReference(op.src.dtype, x[i] + addend[i]));
  }
  return x;
}

// What rounding a value to `dtype` may add.
double HalfStep(DType dtype, double value) {
  if (dtype == DType::kBF16) return std::abs(value) * 0x1p-8;
  if (dtype == DType::kF16) return std::abs(value) * 0x1p-11 + 0x1p-25;
  return 0;
}

// A scale is the largest magnitude of its block over 448, and a code times it as near as E4M3 has.
void CheckQuantised(const Outcome& outcome, const NormalizeOp& op, const NormalizedRows& expected) {
  const int64_t n = Columns(op);
  const std::vector<double> dst = Values(outcome, op.dst);
  const std::vector<double> scales = Values(outcome, *op.scales);
  ASSERT_EQ(dst.size(), expected.values.size());
  size_t block = 0;
  for (size_t row = 0; row < dst.size(); row += n) {
    for (int64_t col = 0; col < n; col += kScaleBlock, ++block) {
      const size_t begin = row + col, end = row + std::min(col + kScaleBlock, n);
      double amax = 0, slack = 0;
      for (size_t i = begin; i < end; ++i) {
        amax = std::max(amax, std::abs(expected.values[i]));
        slack = std::max(slack, expected.slack[i]);
      }
      const double scale = scales[block];
      ASSERT_GT(scale, 0) << "block " << block;
      if (amax > slack) {
        ASSERT_NEAR(scale, amax / 448, (slack + amax * 0x1p-22) / 448) << "block " << block;
      }
      for (size_t i = begin; i < end; ++i) {
        const double most = std::abs(expected.values[i]) + expected.slack[i];
        const double rounding = std::max(most * 0x1p-4, scale * 0x1p-10) * 1.001;
        ASSERT_NEAR(dst[i] * scale, expected.values[i], rounding + expected.slack[i])
            << "element " << i << ", scale " << scale;
      }
    }
  }
}

}  // namespace

void CheckWrites(const Scene& scene, const Outcome& outcome, const NormalizeOp& op) {
  std::vector<bool> written(scene.slots().size());
  const auto check = [&](const TensorRef& tensor) {
    ExpectOnlyElementsWritten(scene, outcome, tensor);
    written[tensor.slot] = true;
  };
  check(op.dst);
  if (op.scales) check(*op.scales);
  if (op.sum) check(*op.sum);
  for (size_t slot = 0; slot < written.size(); ++slot) {
    if (written[slot]) continue;
    EXPECT_TRUE(outcome.slots[slot] == scene.slots()[slot]) << "slot " << slot << " was written";
  }
}

NormalizeOp MakeNormalize(Scene& scene, const NormalizeCase& c) {
  NormalizeOp op;
  op.src = scene.Random(c.from, c.shape, c.src);
  op.dst = scene.Poisoned(c.to, c.shape, c.dst);
  if (c.to == DType::kE4M3) {
    op.scales =
        scene.Poisoned(DType::kF32, ScaleShape(c.shape, ScaleGranularity::kBlock1x128), c.scales);
  }
  const Dims columns = MakeDims({c.shape[c.shape.rank - 1]});
  if (c.weight) op.weight = scene.Random(DType::kF32, columns, c.vectors);
  if (c.bias) op.bias = scene.Random(DType::kF32, columns, c.vectors);
  op.centered = c.centered;
  if (c.summed != Summed::kNot) op.addend = scene.Random(c.from, c.shape, c.addend);
  if (c.summed == Summed::kApart) op.sum = scene.Poisoned(c.from, c.shape, c.sum);
  if (c.summed == Summed::kOverSrc) op.sum = op.src;
  if (c.summed == Summed::kOverAddend) op.sum = op.addend;
  return op;
}

NormalizedRows NormalizeReference(const NormalizeOp& op, const Bindings& bindings) {
  const int64_t n = Columns(op);
  const std::vector<double> x = Summands(op, bindings);
  const auto vector = [&](const std::optional<TensorRef>& given, double otherwise) {
    return given ? ReadTensor(*given, bindings) : std::vector<double>(n, otherwise);
  };
  const std::vector<double> weight = vector(op.weight, 1), bias = vector(op.bias, 0);
  NormalizedRows expected{.x = x};
  for (size_t row = 0; row < x.size(); row += n) {
    double sum = 0, magnitude = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += x[row + i];
      magnitude += std::abs(x[row + i]) / n;
    }
    const double mean = op.centered ? sum / n : 0;
    for (int64_t i = 0; i < n; ++i) squares += (x[row + i] - mean) * (x[row + i] - mean) / n;
    const double deviation = std::sqrt(squares + op.epsilon);
    // A mean in FP32 is off by some of its last places, however little the row deviates from it.
    const double off = op.centered ? magnitude / deviation * 0x1p-20 : 0;
    for (int64_t i = 0; i < n; ++i) {
      const double y = (x[row + i] - mean) / deviation;
      expected.values.push_back(y * weight[i] + bias[i]);
      expected.slack.push_back((std::abs(y) * 0x1p-16 + off) * std::abs(weight[i]) +
                               std::abs(bias[i]) * 0x1p-22 + 1e-30);
    }
  }
  return expected;
}

void CheckSum(const Outcome& outcome, const TensorRef& sum, const std::vector<double>& expected) {
  const std::vector<double> x = Values(outcome, sum);
  ASSERT_EQ(x.size(), expected.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(x[i])) continue;
    ASSERT_EQ(x[i], expected[i]) << "element " << i << " of the sum";
    ASSERT_EQ(std::signbit(x[i]), std::signbit(expected[i])) << "element " << i << " of the sum";
  }
}

void CheckNormalize(Scene& scene, Executor& executor, const NormalizeOp& op) {
  SCOPED_TRACE(ToString(op));
  const Outcome outcome = scene.Run(executor, Op(op));
  const NormalizedRows expected = NormalizeReference(op, scene.Reference());
  CheckWrites(scene, outcome, op);
  if (op.sum) CheckSum(outcome, *op.sum, expected.x);
  if (op.scales) return CheckQuantised(outcome, op, expected);
  const std::vector<double> dst = Values(outcome, op.dst);
  ASSERT_EQ(dst.size(), expected.values.size());
  for (size_t i = 0; i < dst.size(); ++i) {
    const double value = expected.values[i];
    ASSERT_NEAR(dst[i], value, expected.slack[i] + HalfStep(op.dst.dtype, value) * 1.01)
        << "element " << i;
  }
}

}  // namespace gemmd::kernels::contract
