// What the contract suite does not ask of sm90_any_gemm: odd large extents, determinism, batches
// beyond a grid, scales laid out as the FP8 kernels want them.

#include <cmath>
#include <limits>

#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/scale_layout.h"
#include "tests/kernels/contract/matmul_check.h"
#include "tests/kernels/cuda/device_buffer.h"
#include "tests/kernels/cuda/kernel_executor.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::CheckCase;
using contract::ExpectMatchesReference;
using contract::kPlacements;
using contract::MakeMatmul;
using contract::MatmulCase;
using contract::Outcome;
using contract::Scene;

MatmulCase Fp8(int64_t m, int64_t n, int64_t k) {
  MatmulCase c{m, n, k};
  c.dtype = DType::kE4M3;
  c.out = DType::kBF16;
  c.a_granularity = ScaleGranularity::kBlock1x128;
  c.b_granularity = ScaleGranularity::kBlock128x128;
  return c;
}

TEST(AnyGemmGpuTest, MultipliesTheShapesThatTmaCannotServe) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  Scene seed_scene;
  for (int64_t m : {1, 7, 9, 127, 129}) {
    for (int64_t n : {1, 7, 127, 576}) {
      for (int64_t k : {1, 7, 9, 127, 129, 576, 1033}) {
        Scene scene(seed_scene.random()());
        CheckCase(*executor, scene, Fp8(m, n, k));
      }
    }
  }
}

TEST(AnyGemmGpuTest, MultipliesAVocabulary) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  Scene scene;
  CheckCase(*executor, scene, Fp8(2, 151674, 72));
  MatmulCase wide = Fp8(151674, 3, 130);
  CheckCase(*executor, scene, wide);
}

TEST(AnyGemmGpuTest, ReadsMMajorScales) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  for (int64_t m : {3, 64, 130}) {
    Scene scene;
    contract::MatmulCase c = Fp8(m, 200, 389);
    MatmulOp op = MakeMatmul(scene, c);
    const int64_t ld = MMajorLeadingDimension(m);
    TensorRef scales = scene.Scales(MakeDims({4, ld * 128}), ScaleGranularity::kBlock1x128);
    scales.shape = MakeDims({m, 4});
    scales.strides = MakeDims({1, ld});
    op.a.scales = scales;
    ExpectMatchesReference(*executor, scene, op);
  }
}

TEST(AnyGemmGpuTest, GivesTheSameBitsEveryTime) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  for (const DTypeInfo& info : kDTypes) {
    Scene scene;
    MatmulCase c{131, 259, 1033};
    c.dtype = info.dtype;
    const MatmulOp op = MakeMatmul(scene, c);
    const Outcome first = scene.Run(*executor, Op(op));
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(scene.Run(*executor, Op(op)).slots == first.slots) << info.name;
    }
  }
}

TEST(AnyGemmGpuTest, MultipliesManyBatches) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  Scene scene;
  MatmulCase c = Fp8(3, 5, 40);
  c.batch = 70001;
  CheckCase(*executor, scene, c);
}

// One vectorised operand beside one that is not, in every combination.
TEST(AnyGemmGpuTest, MixesAlignedAndMisalignedOperands) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  Scene seed_scene;
  for (const DTypeInfo& info : kDTypes) {
    for (contract::Placement a : kPlacements) {
      for (contract::Placement b : kPlacements) {
        Scene scene(seed_scene.random()());
        MatmulCase c{70, 90, 272};
        c.dtype = info.dtype;
        c.a = a;
        c.b = b;
        CheckCase(*executor, scene, c);
      }
    }
  }
}

// Few tiles and a long k: CTAs share it, and each finishes some of the results.
TEST(AnyGemmGpuTest, SharesALongKAmongCtas) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  Scene seed_scene;
  for (const DTypeInfo& info : kDTypes) {
    for (int64_t k : {256, 1033, 9999}) {
      for (contract::Placement d :
           {contract::Placement::kDense, contract::Placement::kTransposed}) {
        Scene scene(seed_scene.random()());
        MatmulCase c{70, 90, k};
        c.dtype = info.dtype;
        c.d = d;
        CheckCase(*executor, scene, c);
        MatmulOp op = MakeMatmul(scene, c);
        op.c = scene.Random(c.out, MakeDims({c.m, c.n}));
        op.beta = 0.5f;
        op.bias = scene.Random(c.out, MakeDims({c.n}));
        op.activation = Activation::kRelu;
        ExpectMatchesReference(*executor, scene, op);
      }
    }
  }
}

// Rows that begin at every byte there is, of both ways in which they can be dense.
TEST(AnyGemmGpuTest, ReadsRowsFromEverywhere) {
  GEMMD_REQUIRE_DEVICE();
  const auto executor = MakeKernelExecutor(false);
  Scene seed_scene;
  for (const DTypeInfo& info : kDTypes) {
    for (contract::Placement placement :
         {contract::Placement::kDense, contract::Placement::kTransposed}) {
      for (int64_t extent = 65; extent < 97; extent += info.size_bytes == 1 ? 1 : 3) {
        Scene scene(seed_scene.random()());
        MatmulCase c{extent, extent + 2, extent + 1};
        c.dtype = info.dtype;
        c.a = c.b = placement;
        CheckCase(*executor, scene, c);
      }
    }
  }
}

TEST(AnyGemmGpuTest, DoesNothingForAnEmptyResultAndRefusesBadTypes) {
  AnyGemmArgs args;
  args.k = 128;
  EXPECT_EQ(LaunchAnyGemm(args, nullptr), cudaSuccess);
  args.m = args.n = 1;
  args.out = ElementType::kE4M3;
  EXPECT_EQ(LaunchAnyGemm(args, nullptr), cudaErrorInvalidValue);
  args.out = ElementType::kBF16;
  args.bias_type = ElementType::kF16;
  EXPECT_EQ(LaunchAnyGemm(args, nullptr), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
