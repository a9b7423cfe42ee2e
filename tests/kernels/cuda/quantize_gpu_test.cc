// Quantize against the CPU backend, bit for bit: codes, scales, and every byte around them.

#include <bit>
#include <cstring>

#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/ops/scale_layout.h"
#include "tests/kernels/contract/scene.h"
#include "tests/kernels/cuda/device_buffer.h"
#include "tests/kernels/cuda/kernel_executor.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::kPlacements;
using contract::Outcome;
using contract::Placement;
using contract::Scene;

constexpr DType kQuantizeSources[] = {DType::kF32, DType::kBF16, DType::kF16};
constexpr DType kQuantizeTargets[] = {DType::kE4M3, DType::kI8};
constexpr ScaleGranularity kGranularities[] = {
    ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow, ScaleGranularity::kBlock1x128,
    ScaleGranularity::kBlock128x128};

// Shapes that the fast kernels take and shapes that they do not.
const std::vector<Dims>& Shapes() {
  static const auto& shapes = *new std::vector<Dims>{
      MakeDims({1, 1}),     MakeDims({1, 128}),      MakeDims({7, 9}),      MakeDims({9, 576}),
      MakeDims({127, 127}), MakeDims({129, 1152}),   MakeDims({130, 144}),  MakeDims({257, 16}),
      MakeDims({33, 2048}), MakeDims({3, 130, 272}), MakeDims({5, 9, 129}), MakeDims({64, 1, 384}),
  };
  return shapes;
}

// m-major scales: [batch?, k blocks, rows rounded up to 4] seen as [batch?, rows, k blocks].
TensorRef MMajorScales(Scene& scene, const Dims& shape) {
  const Dims extents = ScaleShape(shape, ScaleGranularity::kBlock1x128);
  const int last = extents.rank - 1;
  Dims stored = extents;
  stored[last - 1] = extents[last];
  stored[last] = MMajorLeadingDimension(extents[last - 1]);
  TensorRef scales = scene.Poisoned(DType::kF32, stored);
  std::swap(scales.strides[last - 1], scales.strides[last]);
  scales.shape = extents;
  return scales;
}

QuantizeOp MakeOp(Scene& scene, DType from, DType to, const Dims& shape,
                  ScaleGranularity granularity) {
  const bool m_major = granularity == ScaleGranularity::kBlock1x128 && scene.Between(0, 1) == 1;
  const Dims scales = ScaleShape(shape, granularity);
  return {scene.Random(from, shape), scene.Poisoned(to, shape),
          m_major ? MMajorScales(scene, shape) : scene.Poisoned(DType::kF32, scales), granularity};
}

void ExpectEqualsCpu(Scene& scene, const QuantizeOp& op) {
  const Outcome expected = scene.Run(*MakeCpuExecutor(), Op(op));
  const Outcome actual = scene.Run(*MakeKernelExecutor(false), Op(op));
  for (const TensorRef* tensor : {&op.src, &op.dst, &op.scales}) {
    const contract::Bytes& want = expected.slots[tensor->slot];
    const contract::Bytes& got = actual.slots[tensor->slot];
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(want[i], got[i]) << "byte " << i << " of "
                                 << (tensor == &op.src   ? "src"
                                     : tensor == &op.dst ? "dst"
                                                         : "scales")
                                 << ", seed " << scene.seed();
    }
  }
}

// What fills a run of 128 elements: numbers that rounding, scaling and comparing get wrong.
enum class Pattern {
  kZeros,       // of both signs
  kSubnormals,  // of the source type
  kTiny,        // near the smallest normal scale
  kAnyBits,     // every code: NaN and infinities included
  kTies,        // multiples of 1/16 under a scale that is a power of two
  kOneNaN,      // among ordinary numbers
  kOneInfinity,
  kHuge,
  kCount,
};

uint32_t RandomBits(Scene& scene, DType dtype, Pattern pattern) {
  const auto bits = static_cast<uint32_t>(scene.random()());
  const int fraction = dtype == DType::kF32 ? 23 : dtype == DType::kBF16 ? 7 : 10;
  const int exponent = dtype == DType::kF16 ? 5 : 8;
  const uint32_t sign = (bits >> 31) << (fraction + exponent);
  const uint32_t any_fraction = bits & ((1u << fraction) - 1);
  const uint32_t top = (1u << exponent) - 1;  // infinities and NaN
  const uint32_t bias = top / 2;
  const auto number = [&](uint32_t e) { return sign | e << fraction | any_fraction; };
  switch (pattern) {
    case Pattern::kZeros:
      return sign;
    case Pattern::kSubnormals:
      return sign | any_fraction;
    case Pattern::kTiny:
      return number((bits >> 25) % 24);
    case Pattern::kAnyBits:
      return bits;
    case Pattern::kTies:  // 1.xxx0 * 2^(-8 .. 8), below 448, with few bits of fraction
      return sign | (bias - 8 + (bits >> 20) % 16) << fraction | (bits & 0x1f) << (fraction - 5);
    case Pattern::kHuge:
      return number(top - 1 - (bits >> 26) % 4);
    default:
      return number(bias - (bits >> 27) % 8);
  }
}

// Overwrites src, which is dense, run by run.
void FillWithPatterns(Scene& scene, const TensorRef& src) {
  Outcome outcome;
  outcome.slots = scene.slots();
  std::byte* data = outcome.slots[src.slot].data();
  const int size = SizeBytes(src.dtype);
  const int64_t count = static_cast<int64_t>(outcome.slots[src.slot].size()) / size;
  const auto set = [&](int64_t i, uint32_t bits) { std::memcpy(data + i * size, &bits, size); };
  const int fraction = src.dtype == DType::kF32 ? 23 : src.dtype == DType::kBF16 ? 7 : 10;
  const uint32_t infinity = (src.dtype == DType::kF16 ? 31u : 255u) << fraction;
  for (int64_t i = 0; i < count; i += 128) {
    const auto pattern =
        static_cast<Pattern>(scene.Between(0, static_cast<int>(Pattern::kCount) - 1));
    const int64_t end = std::min(count, i + 128);
    for (int64_t j = i; j < end; ++j) set(j, RandomBits(scene, src.dtype, pattern));
    const int64_t special = scene.Between(i, end - 1);
    const uint32_t sign = static_cast<uint32_t>(scene.Between(0, 1)) << (8 * size - 1);
    if (pattern == Pattern::kOneNaN) set(special, sign | infinity | 1);
    if (pattern == Pattern::kOneInfinity) set(special, sign | infinity);
    if (pattern == Pattern::kTies) {  // 448: the scale is 1
      set(special, ((infinity >> fraction) / 2 + 8) << fraction | 3u << (fraction - 2));
    }
  }
  scene.Replace(outcome);
}

TEST(QuantizeGpuTest, EqualsTheCpuInEveryShapeAndType) {
  GEMMD_REQUIRE_DEVICE();
  Scene seed_scene;
  for (const Dims& shape : Shapes()) {
    for (DType from : kQuantizeSources) {
      for (DType to : kQuantizeTargets) {
        for (ScaleGranularity granularity : kGranularities) {
          Scene scene(seed_scene.random()());
          SCOPED_TRACE(testing::Message()
                       << ToString(shape) << Name(from) << Name(to) << Name(granularity));
          const QuantizeOp op = MakeOp(scene, from, to, shape, granularity);
          ExpectEqualsCpu(scene, op);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(QuantizeGpuTest, EqualsTheCpuOnSpecialNumbers) {
  GEMMD_REQUIRE_DEVICE();
  Scene seed_scene;
  for (int turn = 0; turn < 4; ++turn) {
    for (const Dims& shape : {MakeDims({129, 1152}), MakeDims({67, 384}), MakeDims({31, 389})}) {
      for (DType from : kQuantizeSources) {
        for (DType to : kQuantizeTargets) {
          for (ScaleGranularity granularity : kGranularities) {
            Scene scene(seed_scene.random()());
            SCOPED_TRACE(testing::Message()
                         << ToString(shape) << Name(from) << Name(to) << Name(granularity));
            const QuantizeOp op = MakeOp(scene, from, to, shape, granularity);
            FillWithPatterns(scene, op.src);
            ExpectEqualsCpu(scene, op);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(QuantizeGpuTest, EqualsTheCpuBetweenAnyPlacements) {
  GEMMD_REQUIRE_DEVICE();
  Scene seed_scene;
  for (Placement src : kPlacements) {
    for (Placement dst : kPlacements) {
      for (ScaleGranularity granularity : kGranularities) {
        for (const Dims& shape : {MakeDims({131, 272}), MakeDims({3, 9, 144})}) {
          Scene scene(seed_scene.random()());
          SCOPED_TRACE(testing::Message() << Name(src) << Name(dst) << Name(granularity));
          const QuantizeOp op{scene.Random(DType::kBF16, shape, src),
                              scene.Poisoned(DType::kE4M3, shape, dst),
                              scene.Poisoned(DType::kF32, ScaleShape(shape, granularity),
                                             kPlacements[scene.Between(0, 3)]),
                              granularity};
          ExpectEqualsCpu(scene, op);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Rows that are dense and aligned but further apart than they are long.
TEST(QuantizeGpuTest, EqualsTheCpuOnAlignedRowsWithGaps) {
  GEMMD_REQUIRE_DEVICE();
  Scene seed_scene;
  for (DType from : kQuantizeSources) {
    for (ScaleGranularity granularity : kGranularities) {
      Scene scene(seed_scene.random()());
      QuantizeOp op{scene.Random(from, MakeDims({137, 640})),
                    scene.Poisoned(DType::kE4M3, MakeDims({137, 768})),
                    scene.Poisoned(DType::kF32, ScaleShape(MakeDims({137, 528}), granularity)),
                    granularity};
      op.src.offset_bytes = 16 * SizeBytes(from);
      op.dst.offset_bytes = 32;
      op.src.shape = op.dst.shape = MakeDims({137, 528});
      ExpectEqualsCpu(scene, op);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(QuantizeGpuTest, TakesMoreBatchesThanAGridIsDeep) {
  GEMMD_REQUIRE_DEVICE();
  for (int64_t k : {16, 17}) {
    for (ScaleGranularity granularity : kGranularities) {
      Scene scene;
      SCOPED_TRACE(testing::Message() << k << Name(granularity));
      const QuantizeOp op =
          MakeOp(scene, DType::kBF16, DType::kE4M3, MakeDims({65540, 2, k}), granularity);
      ExpectEqualsCpu(scene, op);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(QuantizeGpuTest, WritesTheScalesThatAnEmptyMatrixHas) {
  GEMMD_REQUIRE_DEVICE();
  for (const Dims& shape : {MakeDims({0, 128}), MakeDims({5, 0}), MakeDims({0, 3, 8}),
                            MakeDims({3, 0, 8}), MakeDims({3, 8, 0})}) {
    for (ScaleGranularity granularity : kGranularities) {
      Scene scene;
      SCOPED_TRACE(testing::Message() << ToString(shape) << Name(granularity));
      const QuantizeOp op{scene.Poisoned(DType::kBF16, shape), scene.Poisoned(DType::kE4M3, shape),
                          scene.Poisoned(DType::kF32, ScaleShape(shape, granularity)), granularity};
      ExpectEqualsCpu(scene, op);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(QuantizeGpuTest, RefusesTypesThatItDoesNotKnow) {
  QuantizeArgs args;
  args.rows = args.k = 16;
  args.src_type = ElementType::kI8;
  EXPECT_EQ(LaunchQuantize(args, nullptr), cudaErrorInvalidValue);
  args.src_type = ElementType::kBF16;
  args.dst_type = ElementType::kF32;
  EXPECT_EQ(LaunchQuantize(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
