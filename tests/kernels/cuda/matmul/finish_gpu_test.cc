// What surrounds a product, by every kernel of every operand kind: operands that are copied in
// front, and C, biases, activations and result types behind.

#include <string>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"
#include "tests/kernels/cuda/matmul/types_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

const Kind kAllKinds[] = {{Mma::kFp8Block, "sm90_fp8_"},    {Mma::kBf16, "sm90_bf16_"},
                          {Mma::kF16, "sm90_f16_"},         {Mma::kI8, "sm90_i8_"},
                          {Mma::kI8Block, "sm90_i8block_"}, {Mma::kFp8Row, "sm90_fp8row_"},
                          {Mma::kF32, "sm90_f32_"}};
std::string NameOf(const testing::TestParamInfo<Kind>& info) {
  const bool blocks = KindOf(info.param.mma).scales == KindScales::kBlocks;
  return std::string(Name(KindOf(info.param.mma).operand)) + (blocks ? "_block" : "");
}

// Operands that lie as the copy engine cannot read them are copied in front.
class OperandsGpuTest : public TypesGpuTest {};

TEST_P(OperandsGpuTest, KernelsMultiplyCopiesOfWhatTheyCannotRead) {
  Scene seed_scene;
  for (const auto& [m, n, k] :
       {std::tuple<int64_t, int64_t, int64_t>{70, 330, 1031}, {7, 200, 2048}, {300, 136, 1111}}) {
    for (const auto& [a, b] : {std::pair(Placement::kTransposed, Placement::kDense),
                               {Placement::kDense, Placement::kTransposed},
                               {Placement::kTransposed, Placement::kTransposed},
                               {Placement::kStrided, Placement::kPadded},
                               {Placement::kPadded, Placement::kStrided}}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(m, n, k);
      c.a = a;
      c.b = b;
      CheckEveryKernel(
          scene, MakeMatmul(scene, c),
          [](const GemmVariant& variant) { return variant.config == 0 && variant.split <= 2; }, 2);
    }
  }
}

TEST_P(OperandsGpuTest, CopiesTheMatricesOfABatch) {
  Scene seed_scene;
  for (bool shared_b : {false, true}) {
    Scene scene(seed_scene.random()());
    MatmulCase c = Shape(130, 200, 515);
    c.batch = 3;
    c.shared_b = shared_b;
    c.b = Placement::kTransposed;
    CheckEveryKernel(
        scene, MakeMatmul(scene, c),
        [](const GemmVariant& variant) { return variant.config == 0 && variant.split == 1; },
        dtype() == DType::kF32 ? 1 : 2);  // families
  }
}

TEST_P(OperandsGpuTest, LargeOperandsAreCopiedAndNotLeftToTheFallback) {
  Scene scene;
  MatmulCase c = Shape(600, 2000, 1000);
  c.b = Placement::kTransposed;
  Check(scene, MakeMatmul(scene, c));
}

INSTANTIATE_TEST_SUITE_P(Types, OperandsGpuTest, testing::ValuesIn(kAllKinds), NameOf);

class FinishGpuTest : public TypesGpuTest {
 protected:
  // C, a bias of either type and some activation, or some of these.
  void Ask(Scene& scene, MatmulOp& op, bool in_place, int flags) {
    op.alpha *= scene.Between(0, 1) == 0 ? -0.5f : 0.5f;
    if (flags & 1) {
      const Placement placement = flags & 2 ? Placement::kPadded : Placement::kDense;
      op.c = scene.Random(op.d.dtype, op.d.shape, placement);
      if (in_place) op.d = *op.c;
      op.beta = 1.25f;
    }
    const int64_t n = op.d.shape[op.d.shape.rank - 1];
    if (flags & 4) op.bias = scene.Random(flags & 8 ? DType::kF32 : op.d.dtype, MakeDims({n}));
    op.activation = static_cast<Activation>(scene.Between(0, kActivations - 1));
  }
};

TEST_P(FinishGpuTest, EveryKernelFinishesShapesThatFillNoTile) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{7, 64, 640},
                                  {65, 65, 1040},
                                  {130, 264, 2048},
                                  {200, 72, 272},
                                  {257, 130, 4096}}) {
      for (int i = 0; i < 3; ++i) {
        Scene scene(seed_scene.random()());
        MatmulOp op = MakeMatmul(scene, Shape(m, n, Aligned(k), out));
        Ask(scene, op, false, static_cast<int>(scene.Between(1, 15)));
        CheckEveryKernel(scene, op);
      }
    }
  }
}

TEST_P(FinishGpuTest, EveryKernelFinishesFromTileToTile) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16}) {
    for (int64_t k : {80, 576}) {
      Scene scene(seed_scene.random()());
      MatmulOp op = MakeMatmul(scene, Shape(1540, 3072, k, out));
      Ask(scene, op, false, 5);
      CheckEveryKernel(scene, op, [](const GemmVariant& variant) { return variant.split == 1; });
    }
  }
}

// Rows of D that begin at no multiple of 16 bytes, of 8 or of 4.
TEST_P(FinishGpuTest, EveryKernelWritesRowsThatBeginAnywhere) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{24, 1035}, {300, 262}, {70, 133}}) {
      Scene scene(seed_scene.random()());
      CheckEveryKernel(scene, MakeMatmul(scene, Shape(m, n, Aligned(640), out)));
    }
  }
}

// What stands beside D in its rows stays: the copy engine writes 16 bytes at a time.
TEST_P(FinishGpuTest, EveryKernelWritesAPartOfAWiderResult) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (bool relu : {false, true}) {
      Scene scene(seed_scene.random()());
      MatmulOp op = MakeMatmul(scene, Shape(300, 1016, Aligned(640), out));
      op.b.values.shape[0] = op.d.shape[1] = 1001;
      if (op.b.granularity == ScaleGranularity::kPerRow) op.b.scales->shape[0] = 1001;
      if (relu) op.activation = Activation::kRelu;
      CheckEveryKernel(scene, op);
    }
  }
}

// C's rows begin as D's do, or otherwise.
TEST_P(FinishGpuTest, EveryKernelAddsToRowsThatBeginAnywhere) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16}) {
    for (bool in_place : {false, true}) {
      for (int flags : {1, 3, 13}) {
        Scene scene(seed_scene.random()());
        MatmulOp op = MakeMatmul(scene, Shape(150, 519, Aligned(640), out));
        Ask(scene, op, in_place, flags);
        CheckEveryKernel(scene, op, [](const GemmVariant& v) { return v.split <= 2; });
      }
    }
  }
}

TEST_P(FinishGpuTest, EveryKernelAddsToWhatIsThere) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16}) {
    for (int64_t m : {24, 520}) {
      Scene scene(seed_scene.random()());
      MatmulOp op = MakeMatmul(scene, Shape(m, 1032, 2048, out));
      Ask(scene, op, true, 1);
      CheckEveryKernel(scene, op);
    }
  }
}

TEST_P(FinishGpuTest, FinishesBatches) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16}) {
    for (int64_t m : {24, 300}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(m, 200, 640, out);
      c.batch = 3;
      MatmulOp op = MakeMatmul(scene, c);
      Ask(scene, op, false, 5);
      CheckEveryKernel(scene, op);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, FinishGpuTest, testing::ValuesIn(kAllKinds), NameOf);

}  // namespace
}  // namespace gemmd::kernels::cuda
