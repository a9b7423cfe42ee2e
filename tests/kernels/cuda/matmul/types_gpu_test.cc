// BF16, FP16, INT8, and E4M3 with scales by row, by the TMA families, through the backend, on a
// device: every kernel on shapes that fill no tile, and what they share with FP8's.

#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/matmul_check.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::MatmulCase;
using contract::Outcome;
using contract::Placement;
using contract::Scene;
using testing::StartsWith;

struct Kind {
  Mma mma;
  const char* family;
};

class TypesGpuTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = kLimit});
    ASSERT_TRUE(backend.ok()) << backend.status();
    executor_ = contract::MakeBackendExecutor(*std::move(backend));
  }

  DType dtype() const { return KindOf(GetParam().mma).operand; }
  bool integers() const { return dtype() == DType::kI8; }
  // A multiple of 16 bytes at or above `k`.
  int64_t Aligned(int64_t k) const {
    const int64_t step = 16 / SizeBytes(dtype());
    return (k + step - 1) / step * step;
  }
  MatmulCase Shape(int64_t m, int64_t n, int64_t k, DType out = DType::kBF16) const {
    MatmulCase c{m, n, k};
    c.dtype = dtype();
    c.out = out;
    if (KindOf(GetParam().mma).scales == KindScales::kBlocks) {
      c.a_granularity = ScaleGranularity::kBlock1x128;
      c.b_granularity = ScaleGranularity::kBlock128x128;
    }
    return c;
  }
  // Runs and checks it; a kernel of the type's families must have been chosen.
  void Check(Scene& scene, const MatmulOp& op) {
    const Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_THAT(outcome.kernels[0], StartsWith(GetParam().family));
  }
  // Every kernel that can, of those that are `wanted`, on one op, held against one reference. INT8
  // without scales is exact.
  using Wanted = bool (*)(const GemmVariant&);
  void CheckEveryKernel(
      Scene& scene, MatmulOp op, Wanted wanted = [](const GemmVariant&) { return true; },
      int least_served = 11) {
    const bool exact =
        integers() && !op.a.scales && !op.b.scales && op.d.dtype == DType::kF32 && op.alpha == 1;
    std::vector<double> expected = ReferenceMatmul(op, scene.Reference());
    if (exact) {
      for (double& value : expected) value = static_cast<float>(value);
    }
    // FP8's tensor cores keep about 14 bits of a sum.
    const double single = dtype() == DType::kE4M3 ? 1e-3 : 1e-5;
    const double limit = exact ? 0 : op.d.dtype == DType::kF32 ? single : 5e-3;
    // An activation's steepest slope is little above 1, and its results may be next to nothing:
    // what it was given says what is allowed.
    MatmulOp given = op;
    given.activation = Activation::kNone;
    double norm = 0;
    for (double value : op.activation == Activation::kNone
                            ? expected
                            : ReferenceMatmul(given, scene.Reference())) {
      norm += value * value;
    }
    const MatmulProblem problem = ProblemOf(op);
    int served = 0;
    for (const GemmVariant& variant : AllVariants()) {
      if (variant.shape().mma != GetParam().mma || !WhyNot(variant, Readable(problem)).empty()) {
        continue;
      }
      if (!wanted(variant)) continue;
      op.kernel = Name(variant);
      const Outcome outcome = scene.Run(*executor_, Op(op));
      ExpectOnlyElementsWritten(scene, outcome, op.d);
      const std::vector<double> actual = Values(outcome, op.d);
      double wrong = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        wrong += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      }
      ASSERT_LE(std::sqrt(wrong), limit * std::sqrt(norm))
          << op.kernel << " on " << ToString(problem) << ", seed " << scene.seed();
      ++served;
    }
    EXPECT_GE(served, least_served) << ToString(problem);
  }

  std::unique_ptr<contract::Executor> executor_;
};

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

TEST_P(TypesGpuTest, LeavesRowsThatAreNotOf16BytesToTheFallback) {
  Scene seed_scene;
  for (const auto& [m, n, k] :
       {std::tuple<int64_t, int64_t, int64_t>{7, 64, 63}, {64, 65, 65}, {65, 63, 7}, {2, 2, 1}}) {
    Scene scene(seed_scene.random()());
    const Outcome outcome =
        ExpectMatchesReference(*executor_, scene, MakeMatmul(scene, Shape(m, n, k)));
    EXPECT_EQ(outcome.kernels, std::vector<std::string>{"sm90_any_gemm"});
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

const Kind kAllKinds[] = {{Mma::kFp8Block, "sm90_fp8_"},    {Mma::kBf16, "sm90_bf16_"},
                          {Mma::kF16, "sm90_f16_"},         {Mma::kI8, "sm90_i8_"},
                          {Mma::kI8Block, "sm90_i8block_"}, {Mma::kFp8Row, "sm90_fp8row_"}};
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
        [](const GemmVariant& variant) { return variant.config == 0 && variant.split == 1; }, 2);
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
