// Normalize on a device beside the contract suite: the fast kernel against the one that takes
// anything. They add up a row in different orders, so results may be a rounding apart.

#include <cmath>
#include <cstring>

#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/ops/normalize.h"
#include "kernels/cuda/ops/scale_layout.h"
#include "tests/kernels/contract/scene.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::Bytes;
using contract::Scene;

constexpr ElementType kNormSources[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16};
constexpr ElementType kNormTargets[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16,
                                        ElementType::kE4M3};
constexpr int64_t kPadding = 8;  // columns behind each row of dst, which nobody writes

struct NormShape {
  int64_t batch, rows, n;
};

// What a launch left: values, times their scales, and the scale of each.
struct Norms {
  std::vector<double> values, scales;
};

// Launches on poisoned results, and holds what lies between them to be as it was.
Norms RunNorm(NormalizeArgs args, const NormShape& shape) {
  const int64_t lines = shape.batch * shape.rows, blocks = (shape.n + 127) / 128;
  const int64_t ld = MMajorLeadingDimension(lines), row = shape.n + kPadding;
  const int size = ElementBytes(args.dst_type);
  const DeviceBuffer dst(Bytes(lines * row * size, std::byte{0xff}));
  const DeviceBuffer scales(Bytes(blocks * ld * 4, std::byte{0xff}));
  args.dst = dst.data();
  args.dst_row = row;
  args.dst_batch = shape.rows * row;
  if (args.dst_type == ElementType::kE4M3) {
    args.scales = reinterpret_cast<float*>(scales.data());
    args.scales_row = 1;
    args.scales_block = ld;
    args.scales_batch = shape.rows;
  }
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaSuccess);

  const Bytes bytes = dst.Download();
  bool between = true;
  for (int64_t line = 0; line < lines; ++line) {
    const std::byte* padding = bytes.data() + (line * row + shape.n) * size;
    for (int64_t i = 0; i < kPadding * size; ++i)
      between = between && padding[i] == std::byte{0xff};
  }
  EXPECT_TRUE(between) << "columns behind a row were written";
  Norms norms;
  norms.values = ReadTensor({.dtype = static_cast<DType>(args.dst_type),
                             .shape = MakeDims({lines, shape.n}),
                             .strides = MakeDims({row, 1})},
                            bytes.data());
  norms.scales.assign(norms.values.size(), 0);
  if (args.scales == nullptr) return norms;
  const Bytes scale_bytes = scales.Download();
  const std::vector<double> scale = ReadTensor(
      {.dtype = DType::kF32, .shape = MakeDims({lines, blocks}), .strides = MakeDims({1, ld})},
      scale_bytes.data());
  for (int64_t i = 0; i < lines * shape.n; ++i) {
    norms.scales[i] = scale[i / shape.n * blocks + i % shape.n / 128];
    norms.values[i] *= norms.scales[i];
  }
  return norms;
}

// The distance of two neighbours in a type, at a value.
double StepAt(ElementType type, double value, double scale) {
  value = std::abs(value);
  if (type == ElementType::kBF16) return value * 0x1p-7;
  if (type == ElementType::kF16) return value * 0x1p-10 + 0x1p-24;
  if (type == ElementType::kE4M3) return value * 0x1p-3 + scale * 0x1p-9;
  return 0;
}

void ExpectFastIsNearAny(ElementType from, ElementType to, bool centered, const NormShape& shape) {
  Scene scene;
  // One column more than are read: an odd stride, which the fast kernel does not take.
  const int64_t lines = shape.batch * shape.rows, row = shape.n + 1;
  const int size = ElementBytes(from);
  const TensorRef x = scene.Random(static_cast<DType>(from), MakeDims({lines, row}));
  const Bytes& apart = scene.slots()[x.slot];
  Bytes dense(lines * shape.n * size);
  for (int64_t line = 0; line < lines; ++line) {
    std::memcpy(dense.data() + line * shape.n * size, apart.data() + line * row * size,
                shape.n * size);
  }
  const DeviceBuffer fast_src(dense), any_src(apart);
  const TensorRef vector = scene.Random(DType::kF32, MakeDims({shape.n}));
  const DeviceBuffer weight(scene.slots()[vector.slot]);
  const DeviceBuffer bias(scene.slots()[scene.Random(DType::kF32, MakeDims({shape.n})).slot]);
  NormalizeArgs args;
  args.batch = shape.batch;
  args.rows = shape.rows;
  args.n = shape.n;
  args.src_type = from;
  args.dst_type = to;
  args.centered = centered;
  if (scene.Between(0, 3) > 0) args.weight = reinterpret_cast<const float*>(weight.data());
  if (scene.Between(0, 3) > 0) args.bias = reinterpret_cast<const float*>(bias.data());

  args.src = fast_src.data();
  args.src_row = shape.n;
  args.src_batch = shape.rows * args.src_row;
  const Norms fast = RunNorm(args, shape);
  args.src = any_src.data();
  args.src_row = row;
  args.src_batch = shape.rows * args.src_row;
  const Norms any = RunNorm(args, shape);
  for (size_t i = 0; i < any.values.size(); ++i) {
    // A bias of up to 1 may cancel what it is added to.
    const double near = (std::abs(any.values[i]) + 2) * 0x1p-16;
    ASSERT_NEAR(fast.values[i], any.values[i],
                near + StepAt(to, std::abs(any.values[i]) + near, any.scales[i]) * 1.01)
        << "from " << static_cast<int>(from) << " to " << static_cast<int>(to) << ", "
        << shape.batch << "x" << shape.rows << "x" << shape.n << " centered " << centered
        << ", element " << i << ", seed " << scene.seed();
    ASSERT_NEAR(fast.scales[i], any.scales[i], any.scales[i] * 0x1p-12 + 0x1p-24) << i;
  }
}

TEST(NormalizeGpuTest, TheFastKernelIsNearTheOneThatTakesAnything) {
  GEMMD_REQUIRE_DEVICE();
  for (ElementType from : kNormSources) {
    for (ElementType to : kNormTargets) {
      for (bool centered : {false, true}) {
        for (const NormShape& shape : {NormShape{1, 1, 8},
                                       {1, 1, 1024},
                                       {1, 1, 8192},
                                       {1, 1, 32768},
                                       {1, 16, 8},
                                       {1, 16, 264},
                                       {2, 8, 4096},
                                       {1, 16, 16384},
                                       {1, 300, 8},
                                       {3, 100, 136},
                                       {1, 300, 1024}}) {
          ExpectFastIsNearAny(from, to, centered, shape);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// More rows than run at once: each thread goes on from row to row, the last of them cut off.
TEST(NormalizeGpuTest, GoesOnToRowsBehindThoseThatRunAtOnce) {
  GEMMD_REQUIRE_DEVICE();
  for (ElementType to : {ElementType::kBF16, ElementType::kE4M3}) {
    for (const NormShape& shape :
         {NormShape{1, 9001, 24}, {2, 4999, 136}, {1, 1601, 2056}, {1, 300, 32768}}) {
      ExpectFastIsNearAny(ElementType::kBF16, to, true, shape);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(NormalizeGpuTest, RefusesTypesThatItDoesNotKnow) {
  NormalizeArgs args;
  args.rows = args.n = 16;
  args.src_type = ElementType::kE4M3;
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaErrorInvalidValue);
  args.src_type = ElementType::kBF16;
  args.dst_type = ElementType::kI8;
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaErrorInvalidValue);
  args.dst_type = ElementType::kE4M3;  // without scales
  EXPECT_EQ(LaunchNormalize(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
