// FP32 on tensor cores, by BF16 parts: as exact as additions in FP32 are, and with the infinities
// and NaNs that multiplications in FP32 have. By the TMA families, and by the fallback.

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/matmul/types_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr Placement kAllPlacements[] = {Placement::kDense, Placement::kPadded,
                                        Placement::kTransposed, Placement::kStrided};
// One of each, of those that a shape of few k's is served by, too.
const char* const kSome[] = {"sm90_any_gemm", "sm90_f32_tiled_m128n64s8",
                             "sm90_f32_tiled_m128n128s6_k2"};

class FloatGpuTest : public TypesGpuTest {
 protected:
  MatmulOp Make(Scene& scene, int64_t m, int64_t n, int64_t k,
                std::pair<Placement, Placement> placed = {}) const {
    MatmulCase c = Shape(m, n, k, DType::kF32);
    c.a = placed.first;
    c.b = placed.second;
    return MakeMatmul(scene, c);
  }
  // Relative to the result, of operands that are mostly positive.
  void ExpectExact(Scene& scene, MatmulOp op, const std::string& kernel, double most = 5e-7) {
    op.kernel = kernel;
    const Outcome outcome = scene.Run(*executor_, Op(op));
    ExpectOnlyElementsWritten(scene, outcome, op.d);
    EXPECT_LT(Error(scene, outcome, op), most) << kernel << " on " << ToString(ProblemOf(op));
  }
};

TEST_P(FloatGpuTest, EveryKernelMultipliesShapesThatFillNoTile) {
  Scene seed_scene;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{7, 63, 64},
                                {1, 300, 1031},
                                {65, 130, 520},
                                {129, 257, 513},
                                {300, 72, 640},
                                {16, 192, 4096}}) {
    Scene scene(seed_scene.random()());
    CheckEveryKernel(scene, Make(scene, m, n, k));
  }
}

TEST_P(FloatGpuTest, EveryKernelGoesFromTileToTile) {
  Scene seed_scene;
  for (int64_t k : {72, 576}) {
    Scene scene(seed_scene.random()());
    CheckEveryKernel(
        scene, Make(scene, 1540, 3072, k), [](const GemmVariant& v) { return v.split == 1; }, 8);
  }
}

TEST_P(FloatGpuTest, OperandsLieAsTheyLike) {
  Scene seed_scene;
  for (const Placement a : kAllPlacements) {
    for (const Placement b : kAllPlacements) {
      for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{70, 131, 299},
                                    {300, 7, 132},
                                    {64, 64, 32},
                                    {9, 64, 260},
                                    {3, 5, 1}}) {
        Scene scene(seed_scene.random()());
        const MatmulOp op = Make(scene, m, n, k, {a, b});
        for (const char* kernel : kSome) ExpectExact(scene, op, kernel);
      }
    }
  }
}

TEST_P(FloatGpuTest, MultipliesTheMatricesOfABatch) {
  Scene seed_scene;
  for (bool shared_b : {false, true}) {
    for (Placement b : {Placement::kDense, Placement::kColumnMajor}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(130, 200, 515, DType::kF32);
      c.batch = 3;
      c.shared_b = shared_b;
      c.b = b;
      const MatmulOp op = MakeMatmul(scene, c);
      for (const char* kernel : kSome) ExpectExact(scene, op, kernel);
    }
  }
}

// Few columns are multiplied as few rows: C, D and what is done to them are turned with them.
TEST_P(FloatGpuTest, FewColumnsAreFinishedAsOthersAre) {
  Scene seed_scene;
  for (Placement d : {Placement::kDense, Placement::kPadded, Placement::kColumnMajor}) {
    for (bool bias : {false, true}) {
      for (int64_t batch : {0, 3}) {
        Scene scene(seed_scene.random()());
        MatmulCase c = Shape(200, 9, 516, DType::kF32);
        c.batch = batch;
        c.d = d;
        MatmulOp op = MakeMatmul(scene, c);
        op.c = scene.Random(DType::kF32, op.d.shape, Placement::kPadded);
        op.beta = 1.25f;
        op.alpha = 0.5f;
        op.activation = Activation::kRelu;
        if (bias) op.bias = scene.Random(DType::kF32, MakeDims({9}));
        ExpectExact(scene, op, "sm90_any_gemm");
      }
    }
  }
}

// Sums round once for each 64 of k at most, and as often up as down.
TEST_P(FloatGpuTest, LongSumsLoseLittle) {
  Scene scene;
  const MatmulOp op = Make(scene, 40, 72, 100003);
  for (const char* kernel : kSome) ExpectExact(scene, op, kernel, 2e-6);
}

// Each value is one product: it is as exact as FP32 multiplies.
TEST_P(FloatGpuTest, SingleProductsAreAsExact) {
  Scene scene;
  MatmulOp op = Make(scene, 128, 256, 64);
  const std::vector<Op> zeros = {FillOp{op.a.values, 0}, FillOp{op.b.values, 0}};
  scene.Replace(scene.Run(*executor_, zeros));
  for (int64_t i = 0; i < 128; ++i) {
    scene.Set(op.a.values, {i, i % 64}, static_cast<float>(std::exp(0.3 * (i - 64)) * 1.2345678));
  }
  for (int64_t j = 0; j < 256; ++j) {
    for (int64_t k = 0; k < 64; ++k) {
      scene.Set(op.b.values, {j, k}, static_cast<float>(std::sin(j + 1.0) * std::exp(0.2 * k)));
    }
  }
  const std::vector<double> expected = ReferenceMatmul(op, scene.Reference());
  for (const char* kernel : kSome) {
    op.kernel = kernel;
    const std::vector<double> values = Values(scene.Run(*executor_, Op(op)), op.d);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], expected[i], 4e-7 * std::abs(expected[i])) << kernel << " at " << i;
    }
  }
}

TEST_P(FloatGpuTest, InfinitiesNaNsAndOverflowsAreThoseOfFp32) {
  constexpr double kNaN = contract::kNaN, kInf = contract::kInfinity;
  constexpr double kMost = std::numeric_limits<float>::max();
  // a * b, among zeros.
  const std::tuple<double, double, double> products[] = {
      {kInf, 2, kInf},
      {kInf, -0.3, -kInf},
      {-kInf, kInf, -kInf},
      {kInf, 0, kNaN},
      {0, -kInf, kNaN},
      {kNaN, 1, kNaN},
      {0, kNaN, kNaN},
      {kInf, kNaN, kNaN},
      {kMost, 1, kMost},
      {kMost, -1, -kMost},
      {kMost, kMost, kInf},
      {-kMost, kMost, -kInf},
      {1.23e30f, 3e20f, kInf},
      {-1.23e25f, 3e25f, -kInf},
      {kMost, 0.5, kMost / 2},
      {0x1p-126, 1, 0x1p-126},
      {0x1p60, 0x1p-60, 1},
      {1e20f, 1e15f, static_cast<double>(1e20f) * static_cast<double>(1e15f)}};
  constexpr int64_t kCount = std::size(products), kK = 40;
  Scene scene;
  MatmulOp op = Make(scene, kCount, kCount, kK);
  const std::vector<Op> zeros = {FillOp{op.a.values, 0}, FillOp{op.b.values, 0}};
  scene.Replace(scene.Run(*executor_, zeros));
  for (int64_t i = 0; i < kCount; ++i) {
    scene.Set(op.a.values, {i, i}, std::get<0>(products[i]));
    scene.Set(op.b.values, {i, i}, std::get<1>(products[i]));
  }
  for (const char* kernel : kSome) {
    op.kernel = kernel;
    const std::vector<double> values = Values(scene.Run(*executor_, Op(op)), op.d);
    for (int64_t i = 0; i < kCount; ++i) {
      const auto& [a, b, expected] = products[i];
      const double value = values[i * kCount + i];
      const std::string what = kernel + (": " + std::to_string(a)) + " * " + std::to_string(b);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << what << " is " << value;
      } else if (std::isinf(expected)) {
        EXPECT_EQ(value, expected) << what;
      } else {
        EXPECT_NEAR(value, expected, 1e-6 * std::abs(expected)) << what;
      }
    }
  }
}

TEST_P(FloatGpuTest, TheSameBitsInEveryRun) {
  Scene scene;
  MatmulOp op = Make(scene, 300, 520, 1111);
  for (const char* kernel : kSome) {
    op.kernel = kernel;
    const Outcome first = scene.Run(*executor_, Op(op));
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(scene.Run(*executor_, Op(op)).slots == first.slots) << kernel;
    }
  }
}

TEST_P(FloatGpuTest, LargeOnesAreChosenFromTheFamilyAndSmallOnesFromTheFallback) {
  Scene seed_scene;
  for (const auto& [extent, kernel] :
       {std::pair<int64_t, const char*>{1024, "sm90_f32_"}, {64, "sm90_any_gemm"}}) {
    Scene scene(seed_scene.random()());
    const MatmulOp op = Make(scene, extent, extent, extent);
    const Outcome outcome = scene.Run(*executor_, Op(op));
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_THAT(outcome.kernels[0], StartsWith(kernel));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FloatGpuTest, testing::Values(Kind{Mma::kF32, "sm90_f32_"}),
                         NameOfType);

}  // namespace
}  // namespace gemmd::kernels::cuda
