// Weights along their rows, [k, n], by every kernel of BF16 and FP16 that reads them so.

#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/matmul/types_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

class AlongRowsGpuTest : public TypesGpuTest {
 protected:
  // Of tiled and skinny configs, with all their splits, and of those that stream k.
  static constexpr int kLeastServed = 60;

  MatmulCase Case(int64_t m, int64_t n, int64_t k, DType out) const {
    MatmulCase c = Shape(m, n, k, out);
    c.b = Placement::kColumnMajor;
    return c;
  }
  void CheckAll(Scene& scene, const MatmulOp& op, int least_served = kLeastServed) {
    const MatmulProblem problem = ProblemOf(op);
    ASSERT_TRUE(ReadsAlongRows(problem)) << ToString(problem);
    ASSERT_FALSE(OperandCopiesOf(problem).b);
    CheckEveryKernel(
        scene, op, [](const GemmVariant& v) { return ReadsAlongRows(v); }, least_served);
  }
};

TEST_P(AlongRowsGpuTest, EveryKernelReadsShapesThatFillNoTile) {
  Scene seed_scene;
  for (DType out : {dtype(), DType::kF32}) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{7, 72, 640},
                                  {65, 136, 1040},
                                  {130, 264, 2048},
                                  {257, 520, 4096},
                                  {300, 1000, 2056}}) {
      Scene scene(seed_scene.random()());
      CheckAll(scene, MakeMatmul(scene, Case(m, n, k, out)), 20);
    }
  }
}

TEST_P(AlongRowsGpuTest, EveryKernelGoesFromTileToTile) {
  Scene seed_scene;
  for (int64_t k : {80, 576}) {
    Scene scene(seed_scene.random()());
    CheckAll(scene, MakeMatmul(scene, Case(1540, 3072, k, DType::kBF16)), 20);
  }
}

TEST_P(AlongRowsGpuTest, EveryKernelFinishesWhatItIsAsked) {
  Scene seed_scene;
  for (DType out : {DType::kBF16, DType::kF32}) {
    for (int64_t m : {24, 520}) {
      Scene scene(seed_scene.random()());
      MatmulOp op = MakeMatmul(scene, Case(m, 1032, 2048, out));
      op.c = scene.Random(out, op.d.shape, Placement::kPadded);
      op.beta = 1.25f;
      op.alpha = 0.5f;
      op.bias = scene.Random(DType::kF32, MakeDims({1032}));
      op.activation = Activation::kSilu;
      CheckAll(scene, op);
    }
  }
}

TEST_P(AlongRowsGpuTest, BiasAndReluAreAppliedWhereResultsAre) {
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Case(520, 1032, 2048, DType::kBF16));
  op.bias = scene.Random(DType::kF32, MakeDims({1032}));
  op.activation = Activation::kRelu;
  CheckAll(scene, op);
}

TEST_P(AlongRowsGpuTest, ReadsAPartOfAWiderMatrix) {
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Case(200, 1064, 1000, DType::kBF16));
  op.b.values.shape[0] = 1000;
  op.b.values.offset_bytes += 24 * 2;
  op.d.shape[1] = 1000;
  CheckAll(scene, op, 20);
}

TEST_P(AlongRowsGpuTest, ReadsTheMatricesOfABatch) {
  Scene seed_scene;
  for (bool shared_b : {false, true}) {
    for (int64_t m : {24, 300}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Case(m, 200, 648, DType::kBF16);
      c.batch = 3;
      c.shared_b = shared_b;
      CheckAll(scene, MakeMatmul(scene, c), 20);
    }
  }
}

// Rows of no 16 bytes are copied, as they lie.
TEST_P(AlongRowsGpuTest, WhatTheCopyEngineCannotReadIsCopied) {
  Scene scene;
  const MatmulOp op = MakeMatmul(scene, Case(520, 1001, 2048, DType::kBF16));
  EXPECT_FALSE(ReadsAlongRows(ProblemOf(op)));
  EXPECT_TRUE(OperandCopiesOf(ProblemOf(op)).b);
  Check(scene, op);
}

TEST_P(AlongRowsGpuTest, TheChoiceReadsThemAsTheyLie) {
  Scene seed_scene;
  for (int64_t m : {1, 16, 100, 333, 2048}) {
    Scene scene(seed_scene.random()());
    Check(scene, MakeMatmul(scene, Case(m, 1024, 2048, DType::kBF16)));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AlongRowsGpuTest, testing::ValuesIn(k16BitKinds), NameOfType);

}  // namespace
}  // namespace gemmd::kernels::cuda
