// Gated: act(gate) * up by its definition in float64, its columns in every arrangement, and the
// E4M3 results that a next matmul takes as they are.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

constexpr Activation kActivationsOfGates[] = {Activation::kNone,    Activation::kRelu,
                                              Activation::kSilu,    Activation::kGeluTanh,
                                              Activation::kGeluErf, Activation::kReluSquared};
constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};

struct GatedCase {
  DType from = DType::kBF16;
  DType to = DType::kBF16;
  Dims shape = MakeDims({1, 1});  // of dst
  int64_t period = 0;
  Activation activation = Activation::kSilu;
  Placement src = Placement::kDense;
  Placement dst = Placement::kDense;
  Placement scales = Placement::kDense;
  bool alone = false;
};

GatedOp MakeGated(Scene& scene, const GatedCase& c) {
  Dims pairs = c.shape;
  if (!c.alone) pairs[pairs.rank - 1] *= 2;
  GatedOp op;
  op.src = scene.Random(c.from, pairs, c.src);
  op.dst = scene.Poisoned(c.to, c.shape, c.dst);
  if (c.to == DType::kE4M3) {
    op.scales =
        scene.Poisoned(DType::kF32, ScaleShape(c.shape, ScaleGranularity::kBlock1x128), c.scales);
  }
  op.activation = c.activation;
  op.period = c.period;
  op.alone = c.alone;
  return op;
}

std::string ToString(const GatedOp& op) {
  return testing::PrintToString(std::string(Name(op.src.dtype))) + " to " +
         std::string(Name(op.dst.dtype)) + " " + kernels::ToString(op.dst.shape) + " period " +
         (op.alone ? "alone" : std::to_string(op.period)) + " " + std::string(Name(op.activation));
}

// What rounding to `dtype` may add.
double Rounding(DType dtype, double value) {
  if (dtype == DType::kBF16) return std::abs(value) * 0x1p-8;
  if (dtype == DType::kF16) return std::abs(value) * 0x1p-11 + 0x1p-25;
  return 0;
}

// Holds each element of an op without scales against float64.
void Check(Scene& scene, Executor& executor, const GatedOp& op) {
  SCOPED_TRACE(ToString(op));
  const Outcome outcome = scene.Run(executor, Op(op));
  const std::vector<double> expected = ReferenceGated(op, scene.Reference());
  const std::vector<double> dst = Values(outcome, op.dst);
  ASSERT_EQ(dst.size(), expected.size());
  for (size_t i = 0; i < dst.size(); ++i) {
    // FP32 keeps 2^-24 of what is added; an offset that cancels against up shows it. An activation
    // below 2^-119 may be 0, here times an up of up to 3e4.
    const double allowed = std::abs(expected[i]) * 0x1p-16 + std::abs(op.up_offset) * 0x1p-20 +
                           Rounding(op.dst.dtype, expected[i]) * 1.01 + 1e-30;
    ASSERT_NEAR(dst[i], expected[i], allowed) << "element " << i;
  }
  ExpectOnlyElementsWritten(scene, outcome, op.dst);
}

// Fills src with numbers out to where every activation is flat or straight.
void Widen(Scene& scene, const TensorRef& src, double widest) {
  for (int64_t row = 0; row < src.shape[0]; ++row) {
    for (int64_t col = 0; col < src.shape[1]; ++col) {
      const double x = std::uniform_real_distribution<double>(-widest, widest)(scene.random());
      scene.Set(src, {row, col}, x);
    }
  }
}

TEST_P(ContractTest, MultipliesUpByTheActivatedGate) {
  Scene seed_scene;
  for (DType from : kFloats) {
    for (DType to : kFloats) {
      for (Activation activation : kActivationsOfGates) {
        for (const auto& [shape, period] : {std::pair{MakeDims({1, 1}), 0},
                                            {MakeDims({3, 127}), 0},
                                            {MakeDims({5, 264}), 0},
                                            {MakeDims({5, 264}), 1},
                                            {MakeDims({2, 384}), 128},
                                            {MakeDims({3, 90}), 3},
                                            {MakeDims({2, 1088}), 64}}) {
          Scene scene(seed_scene.random()());
          const GatedOp op = MakeGated(
              scene,
              {.from = from, .to = to, .shape = shape, .period = period, .activation = activation});
          Check(scene, executor(), op);
        }
      }
    }
  }
}

TEST_P(ContractTest, ActivatesGatesOfAllMagnitudes) {
  for (Activation activation : kActivationsOfGates) {
    for (double widest : {0.01, 3.0, 12.0, 100.0, 3e4}) {
      Scene scene;
      const GatedOp op = MakeGated(scene, {.from = DType::kF32,
                                           .to = DType::kF32,
                                           .shape = MakeDims({7, 300}),
                                           .activation = activation});
      Widen(scene, op.src, widest);
      Check(scene, executor(), op);
    }
  }
}

TEST_P(ContractTest, ClampsGateAndUpAndAddsTheOffset) {
  Scene seed_scene;
  for (DType from : kFloats) {
    for (int64_t period : {0, 1}) {  // the second as in models with alternating columns
      Scene scene(seed_scene.random()());
      GatedOp op = MakeGated(
          scene, {.from = from, .to = DType::kF32, .shape = MakeDims({9, 520}), .period = period});
      op.alpha = 1.702f;
      op.limit = 7;
      op.up_offset = 1;
      Widen(scene, op.src, 12);
      Check(scene, executor(), op);
      op.activation = Activation::kGeluTanh;
      op.alpha = 1;
      Check(scene, executor(), op);
    }
  }
}

// Each activation with some of the types and shapes.
TEST_P(ContractTest, ActivatesGatesThatAreAlone) {
  Scene seeds;
  size_t turn = 0;
  for (DType from : kFloats) {
    for (DType to : kFloats) {
      for (const Dims& shape :
           {MakeDims({1, 1}), MakeDims({3, 127}), MakeDims({5, 264}), MakeDims({2, 7, 1088})}) {
        Scene scene(seeds.random()());
        GatedOp op = MakeGated(scene, {.from = from,
                                       .to = to,
                                       .shape = shape,
                                       .activation = kActivationsOfGates[turn++ % kActivations],
                                       .alone = true});
        Check(scene, executor(), op);
        op.limit = 0.25f;
        Check(scene, executor(), op);
      }
    }
  }
}

TEST_P(ContractTest, GatesBetweenAnyPlacements) {
  Scene seed_scene;
  for (Placement src : kPlacements) {
    for (Placement dst : kPlacements) {
      for (int64_t period : {0, 1, 4}) {
        Scene scene(seed_scene.random()());
        SCOPED_TRACE(testing::Message() << Name(src) << Name(dst));
        Check(scene, executor(),
              MakeGated(scene,
                        {.shape = MakeDims({21, 132}), .period = period, .src = src, .dst = dst}));
      }
    }
  }
}

// The promise that spares the next matmul a pass: E4M3 has the bits that a Gated op into F32 and a
// Quantize of its results leave.
void CheckQuantised(Scene& scene, Executor& executor, const GatedOp& op) {
  SCOPED_TRACE(ToString(op));
  GatedOp plain = op;
  plain.dst = scene.Poisoned(DType::kF32, op.dst.shape);
  plain.scales.reset();
  QuantizeOp quantize;
  quantize.src = plain.dst;
  quantize.dst = op.dst;
  quantize.scales = *op.scales;
  const Outcome by_two = scene.Run(executor, {Op(plain), Op(quantize)});
  const Outcome by_one = scene.Run(executor, Op(op));
  EXPECT_TRUE(by_one.slots[op.dst.slot] == by_two.slots[op.dst.slot]) << "codes differ";
  EXPECT_TRUE(by_one.slots[op.scales->slot] == by_two.slots[op.scales->slot]) << "scales differ";
  ExpectOnlyElementsWritten(scene, by_one, op.dst);
  ExpectOnlyElementsWritten(scene, by_one, *op.scales);
}

TEST_P(ContractTest, QuantisesGatedResultsAsQuantizeDoes) {
  Scene seed_scene;
  for (DType from : kFloats) {
    for (Activation activation : kActivationsOfGates) {
      for (const auto& [shape, period] : {std::pair{MakeDims({1, 1}), 0},
                                          {MakeDims({3, 127}), 0},
                                          {MakeDims({9, 384}), 0},
                                          {MakeDims({4, 256}), 1},
                                          {MakeDims({6, 640}), 128},
                                          {MakeDims({130, 200}), 8},
                                          {MakeDims({2, 4232}), 0},
                                          {MakeDims({1, 1024}), 0}}) {
        if (!Takes()) continue;
        Scene scene(seed_scene.random()());
        CheckQuantised(scene, executor(),
                       MakeGated(scene, {.from = from,
                                         .to = DType::kE4M3,
                                         .shape = shape,
                                         .period = period,
                                         .activation = activation,
                                         .scales = kPlacements[scene.Between(0, 3)]}));
      }
    }
  }
}

TEST_P(ContractTest, QuantisesGatedResultsBetweenAnyPlacements) {
  Scene seed_scene;
  for (Placement src : kPlacements) {
    for (Placement dst : kPlacements) {
      Scene scene(seed_scene.random()());
      SCOPED_TRACE(testing::Message() << Name(src) << Name(dst));
      CheckQuantised(scene, executor(),
                     MakeGated(scene, {.to = DType::kE4M3,
                                       .shape = MakeDims({3, 7, 260}),
                                       .period = scene.Between(0, 1),
                                       .src = src,
                                       .dst = dst,
                                       .scales = kPlacements[scene.Between(0, 3)]}));
    }
  }
}

// Blocks of zeros, of tiny results, and with NaN or infinity in them.
// The bits of the activation into F32 and of what quantises it, wherever they lie.
TEST_P(ContractTest, QuantisesActivatedGatesThatAreAlone) {
  Scene seeds;
  size_t turn = 0;
  for (DType from : kFloats) {
    for (const Dims& shape : {MakeDims({1, 128}), MakeDims({9, 264}), MakeDims({33, 1040})}) {
      for (Placement placement : kPlacements) {
        Scene scene(seeds.random()());
        CheckQuantised(scene, executor(),
                       MakeGated(scene, {.from = from,
                                         .to = DType::kE4M3,
                                         .shape = shape,
                                         .activation = kActivationsOfGates[turn++ % kActivations],
                                         .src = placement,
                                         .dst = placement,
                                         .scales = placement,
                                         .alone = true}));
      }
    }
  }
}

TEST_P(ContractTest, QuantisesGatedResultsThatHaveNoOrdinaryScale) {
  for (double special : {0.0, 1e-38, kNaN, kInfinity, -kInfinity}) {
    Scene scene;
    SCOPED_TRACE(special);
    const GatedOp op =
        MakeGated(scene, {.from = DType::kF32, .to = DType::kE4M3, .shape = MakeDims({2, 256})});
    const bool whole_block = std::abs(special) < 1;
    for (int64_t i = 0; i < (whole_block ? 128 : 1); ++i) scene.Set(op.src, {0, i}, special);
    CheckQuantised(scene, executor(), op);
  }
}

TEST_P(ContractTest, GatesEachItemOfABatchAlone) {
  Scene seed_scene;
  for (DType to : {DType::kBF16, DType::kE4M3}) {
    Scene scene(seed_scene.random()());
    const GatedOp op = MakeGated(scene, {.to = to, .shape = MakeDims({3, 10, 264})});
    const Outcome together = scene.Run(executor(), Op(op));
    const auto item = [](TensorRef tensor, int64_t i) {
      tensor.offset_bytes += i * tensor.strides[0] * SizeBytes(tensor.dtype);
      for (Dims* dims : {&tensor.shape, &tensor.strides}) {
        for (int d = 1; d < dims->rank; ++d) (*dims)[d - 1] = (*dims)[d];
        (*dims)[--dims->rank] = 0;
      }
      return tensor;
    };
    std::vector<Op> ops;
    for (int64_t i = 0; i < 3; ++i) {
      GatedOp one = op;
      one.src = item(op.src, i);
      one.dst = item(op.dst, i);
      if (op.scales) one.scales = item(*op.scales, i);
      ops.push_back(one);
    }
    EXPECT_TRUE(scene.Run(executor(), ops).slots == together.slots) << Name(to);
  }
}

TEST_P(ContractTest, KeepsNaNAndInfinityWithinTheirPair) {
  struct Pair {
    double gate, up, result;
  };
  constexpr double kLargest = std::numeric_limits<float>::max();
  for (Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                                Activation::kRelu, Activation::kReluSquared}) {
    // A square leaves FP32 where what is squared does not.
    const double of_largest = activation == Activation::kReluSquared ? kInfinity : kLargest;
    for (const Pair& pair : {Pair{kNaN, 1, kNaN},
                             {1, kNaN, kNaN},
                             {kInfinity, 2, kInfinity},
                             {kInfinity, -1, -kInfinity},
                             {-kInfinity, 3, 0},
                             {-kLargest, 3, 0},
                             {0, kInfinity, kNaN},
                             {kLargest, 1, of_largest},
                             {-300, 2, 0}}) {
      Scene scene;
      SCOPED_TRACE(testing::Message() << Name(activation) << " " << pair.gate << ", " << pair.up);
      GatedOp op = MakeGated(scene, {.from = DType::kF32,
                                     .to = DType::kF32,
                                     .shape = MakeDims({3, 256}),
                                     .activation = activation});
      scene.Set(op.src, {1, 100}, pair.gate);
      scene.Set(op.src, {1, 256 + 100}, pair.up);
      const std::vector<double> dst = Values(scene.Run(executor(), Op(op)), op.dst);
      for (size_t i = 0; i < dst.size(); ++i) {
        if (i != 256 + 100) {
          ASSERT_TRUE(std::isfinite(dst[i])) << i;
        } else if (std::isnan(pair.result)) {
          ASSERT_TRUE(std::isnan(dst[i])) << dst[i];
        } else {
          ASSERT_EQ(dst[i], pair.result);
        }
      }
      op.limit = 5;  // a clamp keeps NaN
      if (std::isnan(pair.gate) || (std::isnan(pair.up))) {
        ASSERT_TRUE(std::isnan(Values(scene.Run(executor(), Op(op)), op.dst)[256 + 100]));
      }
    }
  }
}

TEST_P(ContractTest, DoesNothingWhereThereIsNothingToGate) {
  for (const Dims& shape : {MakeDims({0, 128}), MakeDims({5, 0}), MakeDims({0, 5, 16})}) {
    for (DType to : {DType::kBF16, DType::kE4M3}) {
      Scene scene(7);
      const Outcome outcome =
          scene.Run(executor(), Op(MakeGated(scene, {.to = to, .shape = shape})));
      EXPECT_TRUE(outcome.slots == scene.slots());
    }
  }
}

TEST_P(ContractTest, RefusesAPeriodThatDoesNotDivide) {
  Scene scene;
  const Op ops[] = {MakeGated(scene, {.shape = MakeDims({4, 96}), .period = 64})};
  EXPECT_EQ(scene.TryRun(executor(), ops).status().code(), absl::StatusCode::kInvalidArgument);
}

// A feed-forward layer as one program: gate_up, SiLU(gate) * up into E4M3, down, all in FP8.
TEST_P(ContractTest, RunsGateUpAndDownAsOneProgram) {
  Scene seed_scene;
  for (const auto& [rows, hidden, inner] :
       {std::tuple{1, 256, 384}, {16, 512, 640}, {70, 384, 256}}) {
    for (int64_t period : {0, 1, 128}) {
      Scene scene(seed_scene.random()());
      SCOPED_TRACE(testing::Message() << rows << " rows, " << hidden << " x " << inner);
      const auto quantised = [&](DType dtype, const Dims& shape, ScaleGranularity granularity) {
        return Operand{scene.Random(dtype, shape), granularity, scene.Scales(shape, granularity)};
      };
      MatmulOp gate_up;
      gate_up.a = quantised(DType::kE4M3, MakeDims({rows, hidden}), ScaleGranularity::kBlock1x128);
      gate_up.b =
          quantised(DType::kE4M3, MakeDims({2 * inner, hidden}), ScaleGranularity::kBlock128x128);
      gate_up.d = scene.Poisoned(DType::kBF16, MakeDims({rows, 2 * inner}));
      gate_up.alpha = 1.0f / (1 << 16);  // into the range where SiLU bends
      GatedOp gated;
      gated.src = gate_up.d;
      gated.dst = scene.Poisoned(DType::kE4M3, MakeDims({rows, inner}));
      // Column by column, as the FP8 kernels of a GPU read them.
      gated.scales =
          scene.Poisoned(DType::kF32, ScaleShape(gated.dst.shape, ScaleGranularity::kBlock1x128),
                         rows % 4 == 0 ? Placement::kTransposed : Placement::kDense);
      gated.period = period;
      MatmulOp down;
      down.a = {gated.dst, ScaleGranularity::kBlock1x128, gated.scales};
      down.b = quantised(DType::kE4M3, MakeDims({hidden, inner}), ScaleGranularity::kBlock128x128);
      down.d = scene.Poisoned(DType::kBF16, MakeDims({rows, hidden}));
      const Outcome outcome = scene.Run(executor(), {Op(gate_up), Op(gated), Op(down)});

      // The same in float64, without a rounding between.
      const std::vector<double> pairs = ReferenceMatmul(gate_up, scene.Reference());
      const std::vector<double> weights = Dequantize(down.b, scene.Reference());
      std::vector<double> expected(rows * hidden);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < inner; ++i) {
          const int64_t p = period == 0 ? inner : period;
          const double* gate = &pairs[row * 2 * inner + i / p * 2 * p + i % p];
          const double y = ReferenceActivation(Activation::kSilu, gate[0]) * gate[p];
          for (int64_t j = 0; j < hidden; ++j) {
            expected[row * hidden + j] += y * weights[j * inner + i];
          }
        }
      }
      EXPECT_LT(RelativeError(Values(outcome, down.d), expected), 0.04);  // one rounding to E4M3
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
