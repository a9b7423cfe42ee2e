// Both operands along their rows, [k, m] and [k, n], as a gradient of weights has them, by every
// kernel of BF16 and FP16 that reads them so.

#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/matmul/types_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

class BothAlongRowsGpuTest : public TypesGpuTest {
 protected:
  // Of tiled configs, with their splits, a few skinny ones, and those that stream k.
  static constexpr int kLeastServedBoth = 30;

  MatmulCase Case(int64_t m, int64_t n, int64_t k, DType out) const {
    MatmulCase c = Shape(m, n, k, out);
    c.a = c.b = Placement::kColumnMajor;
    return c;
  }
  void CheckAll(Scene& scene, const MatmulOp& op, int least_served = kLeastServedBoth) {
    const MatmulProblem problem = ProblemOf(op);
    ASSERT_TRUE(ReadsBothAlongRows(problem)) << ToString(problem);
    ASSERT_FALSE(OperandCopiesOf(problem));
    CheckEveryKernel(
        scene, op, [](const GemmVariant& v) { return ReadsBothAlongRows(v); }, least_served);
  }
};

TEST_P(BothAlongRowsGpuTest, EveryKernelReadsShapesThatFillNoTile) {
  Scene seed_scene;
  for (DType out : {dtype(), DType::kF32}) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{8, 72, 640},
                                  {72, 136, 1040},
                                  {136, 264, 2048},
                                  {264, 520, 4096},
                                  {304, 1000, 2053}}) {
      Scene scene(seed_scene.random()());
      CheckAll(scene, MakeMatmul(scene, Case(m, n, k, out)), 12);
    }
  }
}

TEST_P(BothAlongRowsGpuTest, EveryKernelGoesFromTileToTile) {
  Scene seed_scene;
  for (int64_t k : {80, 577}) {
    Scene scene(seed_scene.random()());
    CheckAll(scene, MakeMatmul(scene, Case(1544, 3080, k, dtype())), 12);
  }
}

TEST_P(BothAlongRowsGpuTest, EveryKernelFinishesWhatItIsAsked) {
  Scene seed_scene;
  for (DType out : {dtype(), DType::kF32}) {
    Scene scene(seed_scene.random()());
    MatmulOp op = MakeMatmul(scene, Case(520, 1032, 2048, out));
    op.c = scene.Random(out, op.d.shape, Placement::kPadded);
    op.beta = 1.25f;
    op.alpha = 0.5f;
    op.bias = scene.Random(DType::kF32, MakeDims({1032}));
    op.activation = Activation::kSilu;
    CheckAll(scene, op);
  }
}

TEST_P(BothAlongRowsGpuTest, EveryKernelAddsToItsResult) {
  Scene seed_scene;
  for (DType out : {dtype(), DType::kF32}) {
    for (int64_t k : {100, 2048}) {
      Scene scene(seed_scene.random()());
      MatmulOp op = MakeMatmul(scene, Case(520, 264, k, out));
      op.beta = 1;
      op.c = scene.Random(out, op.d.shape);
      CheckAll(scene, op, 12);
    }
  }
}

TEST_P(BothAlongRowsGpuTest, ReadsPartsOfWiderMatrices) {
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Case(264, 1064, 1000, dtype()));
  op.a.values.offset_bytes += 8 * 2;
  op.a.values.shape[0] = op.d.shape[0] = 203;
  op.b.values.offset_bytes += 24 * 2;
  op.b.values.shape[0] = op.d.shape[1] = 1000;
  CheckAll(scene, op, 12);
}

TEST_P(BothAlongRowsGpuTest, ReadsTheMatricesOfABatch) {
  Scene seed_scene;
  for (bool shared_b : {false, true}) {
    Scene scene(seed_scene.random()());
    MatmulCase c = Case(304, 200, 648, dtype());
    c.batch = 3;
    c.shared_b = shared_b;
    CheckAll(scene, MakeMatmul(scene, c), 12);
  }
}

// A whose rows are no 16 bytes is copied, as it lies.
TEST_P(BothAlongRowsGpuTest, WhatTheCopyEngineCannotReadIsCopied) {
  Scene scene;
  const MatmulOp op = MakeMatmul(scene, Case(301, 1000, 2048, dtype()));
  EXPECT_FALSE(ReadsBothAlongRows(ProblemOf(op)));
  EXPECT_TRUE(OperandCopiesOf(ProblemOf(op)).a);
  EXPECT_FALSE(OperandCopiesOf(ProblemOf(op)).b);
  Check(scene, op);
}

// A along its rows beside a B along k: the smaller one is turned, whatever else has to be copied.
TEST_P(BothAlongRowsGpuTest, TheSmallerIsTurnedWhereOneOfThemLiesSo) {
  Scene seed_scene;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{2048, 520, 1032},
                                {520, 2048, 1032},
                                {2048, 521, 1032},
                                {2048, 520, 1031},
                                {2047, 520, 1032},
                                {2047, 521, 1031}}) {
    for (int64_t batch : {0, 3}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Case(m, n, k, dtype());
      c.b = Placement::kDense;
      c.batch = batch;
      const MatmulOp op = MakeMatmul(scene, c);
      const OperandCopies copies = OperandCopiesOf(ProblemOf(op));
      const bool a_stays = m > n && m % 8 == 0;
      EXPECT_EQ(copies.a, !a_stays) << m << " " << n << " " << k;
      EXPECT_EQ(copies.b_layout == Layout::kRowsContiguous, a_stays);
      Check(scene, op);
    }
  }
}

TEST_P(BothAlongRowsGpuTest, TheChoiceReadsThemAsTheyLie) {
  Scene seed_scene;
  for (int64_t m : {8, 64, 768, 3072}) {
    Scene scene(seed_scene.random()());
    Check(scene, MakeMatmul(scene, Case(m, 768, 2048, dtype())));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BothAlongRowsGpuTest, testing::ValuesIn(k16BitKinds), NameOfType);

}  // namespace
}  // namespace gemmd::kernels::cuda
