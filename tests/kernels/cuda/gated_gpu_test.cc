// Gated on a device beside the contract suite: the fast kernels against the one that takes
// anything, bit for bit, at sizes and strides of their own.

#include <cstring>

#include "kernels/cuda/args/op_args.h"
#include "kernels/cuda/ops/scale_layout.h"
#include "tests/kernels/contract/scene.h"
#include "tests/kernels/cuda/device_buffer.h"
#include "tests/kernels/cuda/kernel_executor.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::Bytes;
using contract::Outcome;
using contract::Scene;

constexpr ElementType kSources[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16};
constexpr ElementType kTargets[] = {ElementType::kF32, ElementType::kBF16, ElementType::kF16,
                                    ElementType::kE4M3};

struct Shape {
  int64_t batch, rows, n, period;
  int64_t padding = 0;  // columns behind each row of src and dst
  bool alone = false;   // gates, without ups
};

// Everything that a launch writes, poisoned before.
struct Written {
  Bytes dst, scales;
  bool operator==(const Written&) const = default;
};

Written Run(GatedArgs args, const Shape& shape,
            cudaError_t (*launch)(const GatedArgs&, cudaStream_t)) {
  const int64_t row = shape.n + shape.padding;
  const DeviceBuffer dst(
      Bytes(shape.batch * shape.rows * row * ElementBytes(args.dst_type), std::byte{0xff}));
  const int64_t ld = MMajorLeadingDimension(shape.rows);
  const int64_t blocks = (shape.n + 127) / 128;
  const DeviceBuffer scales(Bytes(shape.batch * blocks * ld * 4, std::byte{0xff}));
  args.dst = dst.data();
  args.dst_row = row;
  args.dst_batch = shape.rows * row;
  if (args.dst_type == ElementType::kE4M3) {
    args.scales = reinterpret_cast<float*>(scales.data());
    args.scales_row = 1;
    args.scales_block = ld;
    args.scales_batch = blocks * ld;
  }
  EXPECT_EQ(launch(args, nullptr), cudaSuccess);
  return {dst.Download(), scales.Download()};
}

void ExpectFastEqualsAny(ElementType from, ElementType to, ActivationType activation,
                         const Shape& shape) {
  Scene scene;
  const int64_t row = (shape.alone ? 1 : 2) * shape.n + shape.padding;
  const TensorRef values =
      scene.Random(static_cast<DType>(from), MakeDims({shape.batch * shape.rows, row}));
  const DeviceBuffer src(scene.slots()[values.slot]);
  GatedArgs args;
  args.batch = shape.batch;
  args.rows = shape.rows;
  args.n = shape.n;
  args.src = src.data();
  args.src_type = from;
  args.src_row = row;
  args.src_batch = shape.rows * row;
  args.dst_type = to;
  args.period = shape.period;
  args.alone = shape.alone;
  args.activation = activation;
  args.up_offset = 0.25f;
  args.limit = shape.rows % 2 == 0 ? 0.5f : 0.0f;
  ASSERT_TRUE(Run(args, shape, LaunchGated) == Run(args, shape, LaunchGatedAny))
      << "from " << static_cast<int>(from) << " to " << static_cast<int>(to) << ", activation "
      << static_cast<int>(activation) << ", " << shape.batch << "x" << shape.rows << "x" << shape.n
      << " period " << shape.period << ", seed " << scene.seed();
}

TEST(GatedGpuTest, FastKernelsGiveTheBitsOfTheOneThatTakesAnything) {
  GEMMD_REQUIRE_DEVICE();
  for (ElementType from : kSources) {
    for (ElementType to : kTargets) {
      for (int activation = 0; activation <= 4; ++activation) {
        for (const Shape& shape : {Shape{1, 1, 14336, 14336},
                                   {1, 16, 1024, 1024},
                                   {1, 3, 384, 384, 16},
                                   {1, 7, 136, 136},
                                   {1, 5, 512, 1},
                                   {1, 70, 264, 1, 8},
                                   {2, 6, 640, 128},
                                   {1, 9, 256, 8},
                                   {3, 2, 200, 200},
                                   {1, 33, 128, 16},
                                   {1, 2, 8, 8},
                                   {1, 16, 1024, 0, 8, true},
                                   {2, 7, 136, 0, 0, true}}) {
          ExpectFastEqualsAny(from, to, static_cast<ActivationType>(activation), shape);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// More rows than CTAs that run at once have: a thread goes on from row to row, of which some are
// cut off at the end.
TEST(GatedGpuTest, GoesOnToRowsBehindThoseThatRunAtOnce) {
  GEMMD_REQUIRE_DEVICE();
  for (ElementType from : kSources) {
    for (ElementType to : kTargets) {
      for (const Shape& shape : {Shape{1, 9001, 520, 520, 8},
                                 {1, 9001, 520, 1},
                                 {2, 4999, 512, 128},
                                 {1, 9001, 520, 0, 8, true},
                                 {2, 4999, 1032, 0, 0, true}}) {
        ExpectFastEqualsAny(from, to, ActivationType::kGeluErf, shape);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// More batches and rows than a grid may have.
TEST(GatedGpuTest, StridesOverWhatAGridCannotHold) {
  GEMMD_REQUIRE_DEVICE();
  for (const Shape& shape : {Shape{65540, 2, 16, 16}, {1, 1100000, 16, 16}}) {
    for (ElementType to : {ElementType::kBF16, ElementType::kE4M3}) {
      ExpectFastEqualsAny(ElementType::kBF16, to, ActivationType::kSilu, shape);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GatedGpuTest, RefusesTypesThatItDoesNotKnow) {
  GatedArgs args;
  args.rows = args.n = args.period = 16;
  args.src_type = ElementType::kE4M3;
  EXPECT_EQ(LaunchGated(args, nullptr), cudaErrorInvalidValue);
  args.src_type = ElementType::kBF16;
  args.dst_type = ElementType::kI8;
  EXPECT_EQ(LaunchGated(args, nullptr), cudaErrorInvalidValue);
  args.dst_type = ElementType::kE4M3;  // without scales
  EXPECT_EQ(LaunchGated(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
