// BF16, FP16, INT8, and E4M3 with scales by row, by the TMA families, through the backend, on a
// device: every kernel on shapes that fill no tile, and what they share with FP8's.

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/matmul/types_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

TEST_P(TypesGpuTest, EveryKernelMultipliesShapesThatFillNoTile) {
  Scene seed_scene;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{7, 63, 64},
                                {63, 65, 72},
                                {1, 300, 1032},
                                {65, 130, 520},
                                {129, 257, 512},
                                {40, 200, 2048},
                                {300, 72, 640},
                                {16, 192, 4096}}) {
    Scene scene(seed_scene.random()());
    CheckEveryKernel(scene, MakeMatmul(scene, Shape(m, n, Aligned(k), DType::kF32)));
  }
}

// More tiles than SMs, each of few k blocks: a CTA goes from one to the next.
TEST_P(TypesGpuTest, EveryKernelGoesFromTileToTile) {
  Scene seed_scene;
  for (int64_t k : {72, 576}) {
    Scene scene(seed_scene.random()());
    MatmulOp op = MakeMatmul(scene, Shape(1540, 3072, Aligned(k), DType::kBF16));
    CheckEveryKernel(scene, op, [](const GemmVariant& variant) { return variant.split == 1; });
  }
}

// Parts of tiles, and whole ones between them; a single tile's k among many; teams whose last band
// has fewer tiles than they have CTAs; batches.
TEST_P(TypesGpuTest, CtasThatMeetInATileAddUpItsSums) {
  if (dtype() != DType::kBF16 && dtype() != DType::kF16) GTEST_SKIP() << "no stream-k";
  struct {
    int64_t m, n, k, batch;
  } const shapes[] = {{549, 1300, 1160, 1},
                      {17, 40, 8200, 1},
                      {2310, 260, 1032, 1},
                      {130, 3072, 1096, 1},
                      {300, 500, 1088, 2}};
  Scene seed_scene;
  for (const auto& shape : shapes) {
    for (DType out : {DType::kF32, DType::kBF16}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(shape.m, shape.n, shape.k, out);
      c.batch = shape.batch;
      CheckEveryKernel(
          scene, MakeMatmul(scene, c), [](const GemmVariant& v) { return v.streams_k(); }, 5);
    }
  }
}

TEST_P(TypesGpuTest, SumsThatCrossGiveTheSameBitsEveryTime) {
  if (dtype() != DType::kBF16 && dtype() != DType::kF16) GTEST_SKIP() << "no stream-k";
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Shape(549, 2560, 4104));
  for (const GemmVariant& variant : AllVariants()) {
    if (!variant.streams_k() || variant.shape().mma != GetParam().mma) continue;
    op.kernel = Name(variant);
    const Outcome first = scene.Run(*executor_, Op(op));
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(scene.Run(*executor_, Op(op)).slots == first.slots) << op.kernel;
    }
  }
}

TEST_P(TypesGpuTest, ASingleRowAndColumnNeedNoStride) {
  for (int64_t k : {1, 7, 63, 65, 129}) {
    Scene scene;
    Check(scene, MakeMatmul(scene, Shape(1, 1, k)));
  }
}

TEST_P(TypesGpuTest, AppliesTheEpilogue) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int flags = 0; flags < 8; ++flags) {
      for (int64_t m : {1, 70, 200}) {
        Scene scene(seed_scene.random()());
        MatmulOp op = MakeMatmul(scene, Shape(m, 330, 640, out));
        op.alpha *= -0.5f;
        if (flags & 1) {
          op.c = scene.Random(out, op.d.shape, Placement::kPadded);
          op.beta = 1.25f;
        }
        if (flags & 2) op.bias = scene.Random(out, MakeDims({330}));
        if (flags & 4) op.activation = static_cast<Activation>(scene.Between(1, kActivations - 1));
        Check(scene, op);
      }
    }
  }
}

TEST_P(TypesGpuTest, MultipliesBatches) {
  Scene seed_scene;
  for (bool shared_b : {false, true}) {
    for (int64_t m : {1, 20, 130}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(m, 200, 384);
      c.batch = 3;
      c.shared_b = shared_b;
      Check(scene, MakeMatmul(scene, c));
    }
  }
}

TEST_P(TypesGpuTest, StoresIntoPaddedRows) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{33, 257}, {512, 1000}, {8, 4096}}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(m, n, 256, out);
      c.d = Placement::kPadded;
      Check(scene, MakeMatmul(scene, c));
    }
  }
}

// Copied in front, or left to the fallback: whichever is sooner done.
TEST_P(TypesGpuTest, TakesRowsThatAreNotOf16Bytes) {
  Scene seed_scene;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{7, 64, 63},
                                {64, 65, 65},
                                {65, 63, 7},
                                {2, 2, 1},
                                {300, 999, 7},
                                {130, 70, 1001}}) {
    Scene scene(seed_scene.random()());
    ExpectMatchesReference(*executor_, scene, MakeMatmul(scene, Shape(m, n, k)));
  }
}

TEST_P(TypesGpuTest, GivesTheSameBitsEveryTime) {
  Scene seed_scene;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{3, 2112, 7168},
                                {64, 576, 7168},
                                {512, 1024, 2048},
                                {1000, 1000, 512}}) {
    Scene scene(seed_scene.random()());
    const MatmulOp op = MakeMatmul(scene, Shape(m, n, k));
    const Outcome first = scene.Run(*executor_, Op(op));
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(scene.Run(*executor_, Op(op)).slots == first.slots) << first.kernels[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, TypesGpuTest,
                         testing::Values(Kind{Mma::kBf16, "sm90_bf16_"},
                                         Kind{Mma::kF16, "sm90_f16_"}, Kind{Mma::kI8, "sm90_i8_"},
                                         Kind{Mma::kI8Block, "sm90_i8block_"},
                                         Kind{Mma::kFp8Row, "sm90_fp8row_"}),
                         [](const auto& info) {
                           return std::string(Name(KindOf(info.param.mma).operand)) +
                                  (info.param.mma == Mma::kI8Block ? "_block" : "");
                         });

class RowScalesGpuTest : public TypesGpuTest {};

TEST_P(RowScalesGpuTest, ScalesByRowAndTensorHoweverTheyLie) {
  Scene seed_scene;
  for (ScaleGranularity a :
       {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow}) {
    for (ScaleGranularity b :
         {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow}) {
      for (int64_t m : {1, 60, 300}) {
        for (DType out : {DType::kF32, DType::kBF16}) {
          Scene scene(seed_scene.random()());
          MatmulCase c = Shape(m, 330, 1040, out);
          c.a_granularity = a;
          c.b_granularity = b;
          Check(scene, MakeMatmul(scene, c));
        }
      }
    }
  }
}

TEST_P(RowScalesGpuTest, EveryKernelAppliesScalesByRow) {
  Scene seed_scene;
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{70, 200}, {7, 130}, {257, 72}}) {
    Scene scene(seed_scene.random()());
    MatmulCase c = Shape(m, n, 2048, DType::kBF16);
    c.a_granularity = c.b_granularity = ScaleGranularity::kPerRow;
    CheckEveryKernel(scene, MakeMatmul(scene, c));
  }
}

// More tiles than SMs, of several matrices: a CTA fetches one's scales while the other's are read.
TEST_P(RowScalesGpuTest, EveryKernelKeepsTheScalesOfItsTilesApart) {
  Scene seed_scene;
  for (const auto& [m, n, batch] :
       {std::tuple<int64_t, int64_t, int64_t>{1540, 3072, 1}, {514, 1100, 5}, {24, 9000, 3}}) {
    for (int64_t k : {80, 1040}) {
      for (DType out : {DType::kF32, DType::kBF16}) {
        Scene scene(seed_scene.random()());
        MatmulCase c = Shape(m, n, k, out);
        c.batch = batch;
        c.a_granularity = c.b_granularity = ScaleGranularity::kPerRow;
        CheckEveryKernel(scene, MakeMatmul(scene, c),
                         [](const GemmVariant& variant) { return variant.split == 1; });
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowScalesGpuTest,
                         testing::Values(Kind{Mma::kI8, "sm90_i8_"},
                                         Kind{Mma::kFp8Row, "sm90_fp8row_"}),
                         [](const auto& info) {
                           return std::string(Name(KindOf(info.param.mma).operand));
                         });

class Int8GpuTest : public TypesGpuTest {};

TEST_P(Int8GpuTest, SumsTheLargestProductsOfTheLongestK) {
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Shape(3, 5, 131056, DType::kF32));
  for (const auto& [fill_a, fill_b] : {std::pair{-127.0, -127.0}, {-127.0, 127.0}}) {
    std::vector<Op> ops = {FillOp{op.a.values, fill_a}, FillOp{op.b.values, fill_b}, op};
    const Outcome outcome = scene.Run(*executor_, ops);
    EXPECT_THAT(outcome.kernels.back(), StartsWith("sm90_i8_"));
    for (double value : Values(outcome, op.d)) {
      ASSERT_EQ(value, static_cast<double>(static_cast<float>(fill_a * fill_b * 131056)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Int8GpuTest, testing::Values(Kind{Mma::kI8, "sm90_i8_"}),
                         [](const auto&) { return std::string("i8"); });

}  // namespace
}  // namespace gemmd::kernels::cuda
