// A matmul with a gate: act(gate) * up of its product against float64, in every operand type, and
// not a byte besides.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

constexpr int64_t kBlock = kScaleBlock;

// The op of a case with a gate, whose n is the product's, and the result's too if it is alone.
MatmulOp MakeGatedMatmul(Scene& scene, const MatmulCase& c, const Gate& gate) {
  MatmulCase product = c;
  product.out = DType::kF32;
  product.d = Placement::kDense;
  MatmulOp op = MakeMatmul(scene, product);
  Dims half = op.d.shape;
  if (!gate.alone) half[half.rank - 1] /= 2;
  op.d = scene.Poisoned(c.out, half, c.d);
  if (c.out == DType::kE4M3) {
    op.d_scales = scene.Poisoned(DType::kF32, ScaleShape(half, ScaleGranularity::kBlock1x128));
  }
  op.gate = gate;
  return op;
}

// With scales of blocks, as what FP8 kernels may gate and quantise in one go.
MatmulCase Fp8Case(int64_t m, int64_t n, int64_t k) {
  return {.m = m,
          .n = n,
          .k = k,
          .dtype = DType::kE4M3,
          .out = DType::kE4M3,
          .a_granularity = ScaleGranularity::kBlock1x128,
          .b_granularity = ScaleGranularity::kBlock128x128};
}

// Rows of `columns` numbers each; a batch's items lie behind one another.
void CheckGatedMatmul(Executor& executor, Scene& scene, const MatmulOp& op) {
  const Outcome outcome = scene.Run(executor, Op(op));
  const Dims& shape = op.d.shape;
  const int64_t n = shape[shape.rank - 1],
                rows = NumElements(shape).value() / std::max<int64_t>(n, 1);
  MatmulOp product = ProductOf(op, DType::kF32, op.d.slot);  // of the reference alone
  const std::vector<double> pairs = ReferenceMatmul(product, scene.Reference());
  const std::vector<double> values = Values(outcome, op.d);
  std::vector<double> scales;
  if (op.d_scales) scales = Values(outcome, *op.d_scales);
  const int64_t period = op.gate->period == 0 ? n : op.gate->period;
  const bool alone = op.gate->alone;
  const auto clamp = [&](double x, double low) {
    return op.gate->limit > 0 ? std::max(std::min(x, double{op.gate->limit}), low) : x;
  };
  double error = 0, norm = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t at = alone ? i * n + j : i * 2 * n + j / period * 2 * period + j % period;
      const double gate = clamp(pairs[at], -INFINITY);
      const double up = alone ? 1 : clamp(pairs[at + period], -op.gate->limit);
      const double alpha = op.gate->alpha;
      const double expected = ReferenceActivation(op.gate->activation, alpha * gate) / alpha *
                              (up + op.gate->up_offset);
      const double scale =
          scales.empty() ? 1 : scales[i * ((n + kBlock - 1) / kBlock) + j / kBlock];
      const double difference = values[i * n + j] * scale - expected;
      error += difference * difference;
      norm += expected * expected;
    }
  }
  // E4M3 rounds by up to a sixteenth beyond that, and few large numbers may carry the norm.
  EXPECT_LE(std::sqrt(error), (op.d_scales ? 0.015 + 1.0 / 16 : 0.015) * std::sqrt(norm))
      << kernels::ToString(shape) << " period " << op.gate->period << " "
      << Name(op.gate->activation) << " to " << Name(op.d.dtype) << " by "
      << (outcome.kernels.empty() ? "?" : outcome.kernels[0]);
  ExpectOnlyElementsWritten(scene, outcome, op.d);
  if (op.d_scales) ExpectOnlyElementsWritten(scene, outcome, *op.d_scales);
}

TEST_P(ContractTest, MatmulsOfEveryTypeAreGated) {
  Scene seeds;
  for (const DTypeInfo& info : kDTypes) {
    for (DType out : {DType::kF32, DType::kBF16, DType::kE4M3}) {
      Scene scene(seeds.random()());
      MatmulOp op = MakeGatedMatmul(
          scene, {.m = 19, .n = 72, .k = 40, .dtype = info.dtype, .out = out}, {.period = 4});
      if (SizeBytes(info.dtype) == 1) op.alpha = 1e-3f;
      CheckGatedMatmul(executor(), scene, op);
    }
  }
}

// What FP8 kernels may gate and quantise in one go, and what is next to it.
TEST_P(ContractTest, MatmulsOfFp8AreGatedAndQuantised) {
  Scene seeds;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 256, 128},
                                {16, 512, 400},
                                {17, 256, 256},
                                {64, 768, 272},
                                {65, 256, 128},
                                {300, 512, 256},
                                {40, 384, 130}}) {
    for (int64_t period : {0, 1, 64, 128}) {
      if (period != 0 && n / 2 % period != 0) continue;
      Scene scene(seeds.random()());
      MatmulOp op = MakeGatedMatmul(scene, Fp8Case(m, n, k), {.period = period, .up_offset = 0.5f});
      op.alpha = 1e-4f;
      CheckGatedMatmul(executor(), scene, op);
    }
  }
}

TEST_P(ContractTest, GatesOfMatmulsTakeEveryActivationAndTheClamp) {
  Scene seeds;
  for (int activation = 0; activation < kActivations; ++activation) {
    for (const bool clamped : {false, true}) {
      Gate gate{.activation = static_cast<Activation>(activation)};
      if (clamped) gate.limit = 0.02f;
      if (clamped && gate.activation == Activation::kSilu) gate.alpha = 1.702f;
      if (clamped) gate.up_offset = 1;
      Scene scene(seeds.random()());
      MatmulOp op = MakeGatedMatmul(scene, Fp8Case(33, 256, 256), gate);
      op.alpha = 1e-4f;
      CheckGatedMatmul(executor(), scene, op);
    }
  }
}

TEST_P(ContractTest, BatchesOfGatedMatmulsTakeBiasAndAnyPlace) {
  Scene seeds;
  for (const bool shared_b : {false, true}) {
    for (const Placement placement : kPlacements) {
      Scene scene(seeds.random()());
      MatmulOp op = MakeGatedMatmul(scene,
                                    {.m = 130,
                                     .n = 512,
                                     .k = 256,
                                     .batch = 3,
                                     .shared_b = shared_b,
                                     .dtype = DType::kE4M3,
                                     .out = DType::kE4M3,
                                     .a_granularity = ScaleGranularity::kBlock1x128,
                                     .b_granularity = ScaleGranularity::kBlock128x128,
                                     .a = placement,
                                     .b = placement,
                                     .d = placement},
                                    {});
      op.alpha = 1e-4f;
      CheckGatedMatmul(executor(), scene, op);
      op.bias = scene.Random(DType::kF32, MakeDims({512}));
      CheckGatedMatmul(executor(), scene, op);
    }
  }
}

// Few and many rows, whole tiles and parts of them, an odd number of blocks of 128 columns.
TEST_P(ContractTest, MatmulsAreActivatedAndQuantisedWithoutUps) {
  Scene seeds;
  int activation = 0;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 256, 128},
                                {16, 384, 400},
                                {17, 128, 256},
                                {64, 784, 272},
                                {65, 512, 128},
                                {300, 400, 256},
                                {300, 1104, 400},
                                {40, 131, 130}}) {
    for (const bool has_bias : {false, true}) {
      Scene scene(seeds.random()());
      const Gate gate{.activation = static_cast<Activation>(activation++ % kActivations),
                      .alone = true};
      MatmulOp op = MakeGatedMatmul(scene, Fp8Case(m, n, k), gate);
      op.alpha = 1e-4f;
      if (has_bias) op.bias = scene.Random(DType::kF32, MakeDims({n}));
      CheckGatedMatmul(executor(), scene, op);
    }
  }
}

TEST_P(ContractTest, MatmulsOfEveryTypeTakeAGateAlone) {
  Scene seeds;
  for (const DTypeInfo& info : kDTypes) {
    for (DType out : {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3}) {
      Scene scene(seeds.random()());
      MatmulOp op = MakeGatedMatmul(
          scene, {.m = 19, .n = 71, .k = 40, .batch = 2, .dtype = info.dtype, .out = out},
          {.activation = Activation::kGeluErf, .alone = true});
      if (SizeBytes(info.dtype) == 1) op.alpha = 1e-3f;
      op.bias = scene.Random(DType::kF32, MakeDims({71}));
      CheckGatedMatmul(executor(), scene, op);
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
