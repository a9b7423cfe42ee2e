// Dense matmuls whose operands both lie along their rows, as gradients of weights do, by the
// gradient kernels of BF16 and FP16.

#include <string>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/cuda/sm90/gradient.h"
#include "tests/kernels/cuda/matmul/types_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

class DenseGradientGpuTest : public TypesGpuTest {
 protected:
  const char* name() const {
    return dtype() == DType::kBF16 ? kBf16GradientName : kF16GradientName;
  }
  MatmulCase Case(int64_t m, int64_t n, int64_t k, DType out) const {
    MatmulCase c = Shape(m, n, k, out);
    c.a = c.b = Placement::kColumnMajor;
    return c;
  }
  // By the gradient kernel, whatever the choice would be.
  void CheckGradient(Scene& scene, MatmulOp op) {
    op.kernel = name();
    const Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_EQ(outcome.kernels[0], name());
  }
  void CheckGradient(const MatmulCase& c) {
    SCOPED_TRACE(ToString(c));
    Scene scene(seeds_.random()());
    CheckGradient(scene, MakeMatmul(scene, c));
  }

  Scene seeds_;
};

constexpr DType kResultTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

// By tiles of 128 rows where those are few, else of 256, which two CTAs compute side by side if
// there are columns for them. k ends anywhere in a block.
TEST_P(DenseGradientGpuTest, ShapesThatFillNoTile) {
  for (DType out : kResultTypes) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{72, 136, 40},
                                  {8, 8, 2},
                                  {136, 72, 65},
                                  {264, 520, 1031},
                                  {1032, 2056, 64},
                                  {1544, 3080, 100},
                                  {33784, 120, 40}}) {
      CheckGradient(Case(m, n, k, out));
    }
  }
}

// Each CTA has several tiles, of 256 rows or of 128.
TEST_P(DenseGradientGpuTest, GoesFromTileToTile) {
  for (DType out : kResultTypes) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{4088, 2040}, {4104, 3080}}) {
      CheckGradient(Case(m, n, 129, out));
    }
  }
}

TEST_P(DenseGradientGpuTest, MultipliesTheMatricesOfABatch) {
  for (DType out : kResultTypes) {
    for (const auto& [m, n, k] :
         {std::tuple<int64_t, int64_t, int64_t>{72, 136, 40}, {264, 520, 331}, {1016, 1016, 65}}) {
      MatmulCase c = Case(m, n, k, out);
      c.batch = 3;
      CheckGradient(c);
    }
  }
}

TEST_P(DenseGradientGpuTest, ScalesAndAddsToC) {
  for (DType out : kResultTypes) {
    for (const bool in_place : {false, true}) {
      for (const float beta : {1.0f, 1.25f}) {
        for (const auto& [m, n, k] :
             {std::tuple<int64_t, int64_t, int64_t>{72, 136, 40}, {1032, 2056, 130}}) {
          Scene scene(seeds_.random()());
          MatmulOp op = MakeMatmul(scene, Case(m, n, k, out));
          op.alpha = 0.5f;
          op.beta = beta;
          op.c = scene.Random(out, op.d.shape);
          if (in_place) op.d = *op.c;
          CheckGradient(scene, op);
        }
      }
    }
  }
}

// A C that the copy engine cannot read.
TEST_P(DenseGradientGpuTest, ReadsCElementByElement) {
  for (DType out : kResultTypes) {
    Scene scene(seeds_.random()());
    MatmulOp op = MakeMatmul(scene, Case(520, 264, 100, out));
    op.beta = -0.75f;
    op.c = scene.Random(out, op.d.shape, Placement::kPadded);
    CheckGradient(scene, op);
  }
}

TEST_P(DenseGradientGpuTest, AddsToTheMatricesOfABatch) {
  for (const bool in_place : {false, true}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{264, 520}, {1016, 1016}}) {
      Scene scene(seeds_.random()());
      MatmulCase c = Case(m, n, 100, DType::kF32);
      c.batch = 3;
      MatmulOp op = MakeMatmul(scene, c);
      op.beta = 1;
      op.c = scene.Random(DType::kF32, op.d.shape);
      if (in_place) op.d = *op.c;
      CheckGradient(scene, op);
    }
  }
}

// Operands and results are parts of wider matrices, in rows of 16 bytes; what surrounds d stays.
TEST_P(DenseGradientGpuTest, PartsOfWiderMatrices) {
  for (DType out : kResultTypes) {
    Scene scene(seeds_.random()());
    MatmulOp op = MakeMatmul(scene, Case(528, 1064, 300, out));
    op.a.values.offset_bytes += 24 * 2;
    op.a.values.shape[0] = op.d.shape[0] = 499;
    op.b.values.offset_bytes += 8 * 2;
    op.b.values.shape[0] = op.d.shape[1] = 1000;
    op.d.offset_bytes += 16 * SizeBytes(out);
    CheckGradient(scene, op);
  }
}

TEST_P(DenseGradientGpuTest, TheSameBitsInEveryRun) {
  for (DType out : kResultTypes) {
    Scene scene(seeds_.random()());
    MatmulOp op = MakeMatmul(scene, Case(1032, 2056, 1031, out));
    op.kernel = name();
    const Outcome first = scene.Run(*executor_, Op(op));
    for (int run = 1; run < 3; ++run) {
      const Outcome again = scene.Run(*executor_, Op(op));
      EXPECT_TRUE(again.slots[op.d.slot] == first.slots[op.d.slot]) << "run " << run;
    }
  }
}

TEST_P(DenseGradientGpuTest, IsChosenForGradientsOfWeights) {
  Scene scene;
  const MatmulOp op = MakeMatmul(scene, Case(2048, 2048, 2048, DType::kBF16));
  const Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
  ASSERT_EQ(outcome.kernels.size(), 1u);
  EXPECT_EQ(outcome.kernels[0], name());
}

// Few rows fill few of its tiles: a copy in front of a kernel that divides k is quicker.
TEST_P(DenseGradientGpuTest, FewRowsAreLeftToOthers) {
  Scene scene;
  const MatmulOp op = MakeMatmul(scene, Case(16, 2048, 2048, DType::kBF16));
  const Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
  ASSERT_EQ(outcome.kernels.size(), 1u);
  EXPECT_NE(outcome.kernels[0], name());
}

INSTANTIATE_TEST_SUITE_P(Types, DenseGradientGpuTest, testing::ValuesIn(k16BitKinds), NameOfType);

}  // namespace
}  // namespace gemmd::kernels::cuda
