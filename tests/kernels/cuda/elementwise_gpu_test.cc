// Convert and Fill against the CPU backend, bit for bit, NaN payloads included.

#include <cstring>

#include "kernels/cuda/ops/elementwise.h"
#include "tests/kernels/contract/scene.h"
#include "tests/kernels/cuda/device_buffer.h"
#include "tests/kernels/cuda/kernel_executor.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::kPlacements;
using contract::Outcome;
using contract::Placement;
using contract::Scene;

void ExpectEqualsCpu(Scene& scene, const Op& op) {
  const Outcome expected = scene.Run(*MakeCpuExecutor(), op);
  const Outcome actual = scene.Run(*MakeKernelExecutor(false), op);
  ASSERT_EQ(expected.slots.size(), actual.slots.size());
  for (size_t slot = 0; slot < expected.slots.size(); ++slot) {
    const contract::Bytes& want = expected.slots[slot];
    const contract::Bytes& got = actual.slots[slot];
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(want[i], got[i]) << "byte " << i << " of slot " << slot << ", seed "
                                 << scene.seed();
    }
  }
}

// Every code of a type of one or two bytes; random bits of FP32.
TensorRef AllCodes(Scene& scene, DType dtype) {
  const int64_t count = SizeBytes(dtype) == 1 ? 256 : 65536;
  const TensorRef tensor = scene.Poisoned(dtype, MakeDims({count}));
  Outcome outcome;
  outcome.slots = scene.slots();
  for (int64_t i = 0; i < count; ++i) {
    uint32_t code = static_cast<uint32_t>(i);
    if (dtype == DType::kF32) {
      code = static_cast<uint32_t>(scene.random()());
      // A third of them within reach of the narrower types.
      if (i % 3 == 0) code = (code & 0x807fffffu) | (100 + code % 50) << 23;
      if (i % 64 == 0) code |= 0x7f800000u;
    }
    std::memcpy(&outcome.slots[tensor.slot][i * SizeBytes(dtype)], &code, SizeBytes(dtype));
  }
  scene.Replace(outcome);
  return tensor;
}

TEST(ElementwiseGpuTest, ConvertsEveryCodeAsTheCpuDoes) {
  GEMMD_REQUIRE_DEVICE();
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      for (Placement placement : {Placement::kDense, Placement::kStrided}) {
        Scene scene;
        SCOPED_TRACE(testing::Message() << from.name << " to " << to.name << Name(placement));
        const TensorRef src = AllCodes(scene, from.dtype);
        ExpectEqualsCpu(scene, ConvertOp{src, scene.Poisoned(to.dtype, src.shape, placement)});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ElementwiseGpuTest, ConvertsBetweenAnyPlacements) {
  GEMMD_REQUIRE_DEVICE();
  Scene seed_scene;
  for (const Dims& shape : {MakeDims({1}), MakeDims({4099}), MakeDims({129, 576}), MakeDims({7, 9}),
                            MakeDims({3, 40, 16}), MakeDims({5, 127, 33})}) {
    for (Placement from : kPlacements) {
      for (Placement to : kPlacements) {
        Scene scene(seed_scene.random()());
        const DType src = kDTypes[scene.Between(0, kDTypes.size() - 1)].dtype;
        const DType dst = kDTypes[scene.Between(0, kDTypes.size() - 1)].dtype;
        SCOPED_TRACE(testing::Message() << ToString(shape) << Name(src) << Name(from) << " to "
                                        << Name(dst) << Name(to));
        const TensorRef source = scene.Random(src, shape, from);
        ExpectEqualsCpu(scene, ConvertOp{source, scene.Poisoned(dst, shape, to)});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Aligned rows with gaps: packs of eight in every row, and a rest.
TEST(ElementwiseGpuTest, ConvertsAlignedRowsWithGaps) {
  GEMMD_REQUIRE_DEVICE();
  Scene seed_scene;
  for (const DTypeInfo& from : kDTypes) {
    for (const DTypeInfo& to : kDTypes) {
      Scene scene(seed_scene.random()());
      TensorRef src = scene.Random(from.dtype, MakeDims({3, 21, 96}));
      TensorRef dst = scene.Poisoned(to.dtype, MakeDims({3, 21, 112}));
      src.shape = dst.shape = MakeDims({3, 21, 83});
      ExpectEqualsCpu(scene, ConvertOp{src, dst});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ElementwiseGpuTest, FillsAsTheCpuDoes) {
  GEMMD_REQUIRE_DEVICE();
  for (const DTypeInfo& info : kDTypes) {
    for (Placement placement : kPlacements) {
      for (const Dims& shape : {MakeDims({1}), MakeDims({2051}), MakeDims({3, 17, 45})}) {
        for (double value : {0.0, -3.0, 1e9, 0.1}) {
          Scene scene(1);
          SCOPED_TRACE(testing::Message() << info.name << Name(placement) << value);
          ExpectEqualsCpu(scene, FillOp{scene.Poisoned(info.dtype, shape, placement), value});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ElementwiseGpuTest, DoesNothingWithoutElements) {
  EXPECT_EQ(LaunchConvert({}, nullptr), cudaSuccess);
  EXPECT_EQ(LaunchFill({}, nullptr), cudaSuccess);
  ConvertArgs negative;
  negative.shape[2] = -1;
  EXPECT_EQ(LaunchConvert(negative, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
