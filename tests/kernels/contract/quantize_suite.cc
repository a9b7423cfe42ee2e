// Quantize: scales from each block's largest magnitude, and what NaN, infinity and zero do.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/kernels/contract/matmul_check.h"
#include "tests/sanitized.h"

namespace gemmd::kernels::contract {
namespace {

constexpr ScaleGranularity kQuantizeGranularities[] = {
    ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow, ScaleGranularity::kBlock1x128,
    ScaleGranularity::kBlock128x128};
constexpr DType kTargets[] = {DType::kE4M3, DType::kE5M2, DType::kI8};

QuantizeOp MakeQuantize(Scene& scene, DType from, DType to, const Dims& shape,
                        ScaleGranularity granularity, Placement src = Placement::kDense,
                        Placement dst = Placement::kDense, Placement scales = Placement::kDense) {
  return {scene.Random(from, shape, src), scene.Poisoned(to, shape, dst),
          scene.Poisoned(DType::kF32, ScaleShape(shape, granularity), scales), granularity};
}

// Which scale the element {row, k} of a [rows, k] matrix belongs to, in row-major order of scales.
int64_t ScaleIndex(const Dims& shape, ScaleGranularity granularity, int64_t row, int64_t k) {
  const int64_t blocks = (shape[1] + kScaleBlock - 1) / kScaleBlock;
  switch (granularity) {
    case ScaleGranularity::kPerRow:
      return row;
    case ScaleGranularity::kBlock1x128:
      return row * blocks + k / kScaleBlock;
    case ScaleGranularity::kBlock128x128:
      return row / kScaleBlock * blocks + k / kScaleBlock;
    default:
      return 0;
  }
}

// Holds codes and scales against the formula in op.h, bit for bit, in FP32 like the formula.
void Check(Scene& scene, Executor& executor, const QuantizeOp& op) {
  const Outcome outcome = scene.Run(executor, Op(op));
  const std::vector<double> src = Values(outcome, op.src);
  const std::vector<double> dst = Values(outcome, op.dst);
  const std::vector<double> scales = Values(outcome, op.scales);
  const int64_t ks = op.src.shape[1];
  std::vector<float> amax(scales.size(), 0.0f);
  for (size_t i = 0; i < src.size(); ++i) {
    float& max = amax[ScaleIndex(op.src.shape, op.granularity, i / ks, i % ks)];
    max = std::max(max, std::abs(static_cast<float>(src[i])));
  }
  const float top = static_cast<float>(Info(op.dst.dtype).max_finite);
  for (size_t i = 0; i < scales.size(); ++i) {
    const float expected =
        amax[i] == 0 ? 1.0f : std::max(amax[i] / top, std::numeric_limits<float>::min());
    ASSERT_EQ(static_cast<float>(scales[i]), expected) << "scale " << i;
  }
  for (size_t i = 0; i < src.size(); ++i) {
    const double scale = scales[ScaleIndex(op.src.shape, op.granularity, i / ks, i % ks)];
    const float quotient = static_cast<float>(src[i]) / static_cast<float>(scale);
    ASSERT_EQ(dst[i], DecodeReference(op.dst.dtype, EncodeReference(op.dst.dtype, quotient)))
        << "element " << i << ": " << src[i] << " / " << scale;
  }
  ExpectOnlyElementsWritten(scene, outcome, op.dst);
  ExpectOnlyElementsWritten(scene, outcome, op.scales);
}

TEST_P(ContractTest, QuantizesByTheLargestMagnitudeOfEachBlock) {
  Scene seed_scene;
  for (DType from : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (DType to : kTargets) {
      for (ScaleGranularity granularity : kQuantizeGranularities) {
        for (const Dims& shape : {MakeDims({1, 1}), MakeDims({3, 127}), MakeDims({129, 128}),
                                  MakeDims({130, 389}), MakeDims({5, 1500})}) {
          if (!Takes()) continue;
          Scene scene(seed_scene.random()());
          SCOPED_TRACE(testing::Message() << Name(from) << " " << Name(to) << " "
                                          << Name(granularity) << " " << ToString(shape));
          Check(scene, executor(), MakeQuantize(scene, from, to, shape, granularity));
        }
      }
    }
  }
}

// Kernels divide by way of a reciprocal and correct it once, which finds the nearest quotient's
// code but not always the quotient: elements a few last places around each of the codes' ties.
TEST_P(ContractTest, RoundsFp32ElementsAroundTheTiesOfCodesExactly) {
  constexpr int64_t kRows = GEMMD_SANITIZED ? 24 : 192;
  for (const DType to : kTargets) {
    if (!Takes()) continue;
    Scene scene;
    SCOPED_TRACE(Name(to));
    std::vector<float> ties;
    for (uint32_t code = 0; DecodeReference(to, code) < Info(to).max_finite; ++code) {
      ties.push_back(
          static_cast<float>((DecodeReference(to, code) + DecodeReference(to, code + 1)) / 2));
    }
    const auto k = static_cast<int64_t>(ties.size()) * 5 + 1;
    const QuantizeOp op =
        MakeQuantize(scene, DType::kF32, to, MakeDims({kRows, k}), ScaleGranularity::kPerRow);
    for (int64_t row = 0; row < kRows; ++row) {
      const float largest = std::uniform_real_distribution<float>(0.5f, 2.0f)(scene.random());
      const float scale = largest / static_cast<float>(Info(to).max_finite);
      scene.Set(op.src, {row, 0}, largest);
      for (int64_t i = 1; i < k; ++i) {
        const float x = ties[static_cast<size_t>((i - 1) / 5)] * scale;
        const auto nudged = std::bit_cast<uint32_t>(x) + static_cast<uint32_t>((i - 1) % 5) - 2;
        scene.Set(op.src, {row, i}, std::min(std::bit_cast<float>(nudged), largest));
      }
    }
    Check(scene, executor(), op);
  }
}

// All pairs of BF16's mantissas, element and largest magnitude, and some of FP16's.
TEST_P(ContractTest, DividesSixteenBitElementsExactly) {
  struct Mantissas {
    DType dtype;
    int count, step, exponents;  // step between the largest magnitudes; exponents below theirs
  };
  constexpr int kFewer = GEMMD_SANITIZED ? 8 : 1;
  for (const Mantissas& of :
       {Mantissas{DType::kBF16, 128, kFewer, 22}, {DType::kF16, 1024, 41 * kFewer, 13}}) {
    const int64_t rows = (of.count + of.step - 1) / of.step;
    const int64_t k = static_cast<int64_t>(of.exponents) * of.count;
    Scene scene;
    SCOPED_TRACE(Name(of.dtype));
    const QuantizeOp op = MakeQuantize(scene, of.dtype, DType::kE4M3, MakeDims({rows, k}),
                                       ScaleGranularity::kBlock1x128);
    for (int64_t row = 0; row < rows; ++row) {
      const double largest = 1 + static_cast<double>(row * of.step) / of.count;
      for (int64_t i = 0; i < k; ++i) {
        const double x = std::ldexp(1 + static_cast<double>(i % of.count) / of.count,
                                    static_cast<int>(-(i / of.count)));
        scene.Set(op.src, {row, i}, i % kScaleBlock == 0 ? largest : x <= largest ? x : -largest);
      }
    }
    Check(scene, executor(), op);
  }
}

TEST_P(ContractTest, QuantizesBetweenAnyPlacements) {
  Scene seed_scene;
  for (Placement src : kPlacements) {
    for (Placement dst : kPlacements) {
      for (ScaleGranularity granularity : kQuantizeGranularities) {
        if (!Takes()) continue;
        Scene scene(seed_scene.random()());
        SCOPED_TRACE(testing::Message() << Name(src) << Name(dst) << Name(granularity));
        Check(scene, executor(),
              MakeQuantize(scene, DType::kBF16, DType::kE4M3, MakeDims({131, 260}), granularity,
                           src, dst, kPlacements[scene.Between(0, 3)]));
      }
    }
  }
}

TEST_P(ContractTest, QuantizesEachItemOfABatchAlone) {
  Scene seed_scene;
  for (DType to : kTargets) {
    for (ScaleGranularity granularity : kQuantizeGranularities) {
      Scene scene(seed_scene.random()());
      QuantizeOp op = MakeQuantize(scene, DType::kF32, to, MakeDims({3, 130, 200}), granularity);
      const Outcome outcome = scene.Run(executor(), Op(op));
      // The same op on each item, dropping the batch dimension.
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
        ops.push_back(
            QuantizeOp{item(op.src, i), item(op.dst, i), item(op.scales, i), granularity});
      }
      EXPECT_TRUE(scene.Run(executor(), ops).slots == outcome.slots) << Name(granularity);
    }
  }
}

TEST_P(ContractTest, GivesAnAllZeroBlockTheScaleOne) {
  for (DType to : kTargets) {
    Scene scene;
    const QuantizeOp op =
        MakeQuantize(scene, DType::kF32, to, MakeDims({3, 256}), ScaleGranularity::kBlock1x128);
    TensorRef block = op.src;  // row 1, second block
    block.offset_bytes += (256 + 128) * 4;
    block.shape = MakeDims({1, 128});
    const Outcome outcome = scene.Run(executor(), {Op(FillOp{block, 0}), Op(op)});
    EXPECT_EQ(Values(outcome, op.scales)[3], 1);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(Values(outcome, op.dst)[256 + 128 + i], 0);
  }
}

TEST_P(ContractTest, KeepsTinyBlocksScalesNormal) {
  for (DType to : kTargets) {
    Scene scene;
    const QuantizeOp op =
        MakeQuantize(scene, DType::kF32, to, MakeDims({2, 128}), ScaleGranularity::kPerRow);
    const Outcome outcome = scene.Run(executor(), {Op(FillOp{op.src, 0x1p-125}), Op(op)});
    for (double scale : Values(outcome, op.scales)) EXPECT_EQ(scale, 0x1p-126);
    for (double value : Values(outcome, op.dst)) EXPECT_EQ(value, 2);
  }
}

TEST_P(ContractTest, KeepsNaNAndInfinityWithinTheirBlock) {
  constexpr double kBad[] = {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()};
  struct Source {
    DType dtype;
    int64_t k;
  };
  for (const Source& from : {Source{DType::kF32, 300}, {DType::kBF16, 304}, {DType::kF16, 304}}) {
    for (DType to : kTargets) {
      for (ScaleGranularity granularity : kQuantizeGranularities) {
        for (double bad : kBad) {
          Scene scene;
          SCOPED_TRACE(testing::Message()
                       << Name(from.dtype) << Name(to) << Name(granularity) << bad);
          const Dims shape = MakeDims({140, from.k});
          const QuantizeOp op = MakeQuantize(scene, from.dtype, to, shape, granularity);
          scene.Set(op.src, {0, 0}, 0.5);  // a finite number beside it
          scene.Set(op.src, {0, 5}, bad);
          const Outcome outcome = scene.Run(executor(), Op(op));
          const std::vector<double> dst = Values(outcome, op.dst);
          const std::vector<double> scales = Values(outcome, op.scales);
          for (size_t i = 0; i < scales.size(); ++i) {
            EXPECT_EQ(std::isnan(scales[i]), to == DType::kE4M3 && i == 0) << i;
            EXPECT_FALSE(std::isinf(scales[i])) << i;
          }
          for (int64_t i = 0; i < 140 * from.k; ++i) {
            const bool same_block = ScaleIndex(shape, granularity, i / from.k, i % from.k) == 0;
            const bool nan = to == DType::kE4M3   ? same_block
                             : to == DType::kE5M2 ? i == 5 && std::isnan(bad)
                                                  : false;
            ASSERT_EQ(std::isnan(dst[i]), nan) << i;
            ASSERT_EQ(std::isinf(dst[i]), to == DType::kE5M2 && i == 5 && std::isinf(bad)) << i;
          }
          if (to == DType::kE5M2 && std::isinf(bad)) {
            EXPECT_EQ(dst[5], bad);
          }
          if (to != DType::kE4M3) {
            EXPECT_GT(dst[0], 0);  // its block still has a scale of its own
          }
          if (to == DType::kI8) {
            EXPECT_EQ(dst[5], std::isnan(bad) ? 0 : std::copysign(127, bad));
          }
        }
      }
    }
  }
}

TEST_P(ContractTest, QuantizedMatmulIsCloseToTheOriginal) {
  Scene scene;
  const TensorRef a = scene.Random(DType::kF32, MakeDims({100, 520}));
  const TensorRef b = scene.Random(DType::kF32, MakeDims({200, 520}));
  const auto quantised = [&](const TensorRef& x, ScaleGranularity granularity) {
    return Operand{scene.Poisoned(DType::kE4M3, x.shape), granularity,
                   scene.Poisoned(DType::kF32, ScaleShape(x.shape, granularity))};
  };
  MatmulOp op;
  op.a = quantised(a, ScaleGranularity::kBlock1x128);
  op.b = quantised(b, ScaleGranularity::kBlock128x128);
  op.d = scene.Poisoned(DType::kBF16, MakeDims({100, 200}));
  const Outcome outcome = scene.Run(
      executor(), {Op(QuantizeOp{a, op.a.values, *op.a.scales, op.a.granularity}),
                   Op(QuantizeOp{b, op.b.values, *op.b.scales, op.b.granularity}), Op(op)});
  MatmulOp original = op;
  original.a = {a};
  original.b = {b};
  EXPECT_LT(Error(scene, outcome, original), 0.04);  // two roundings to 3 bits of fraction
}

}  // namespace
}  // namespace gemmd::kernels::contract
