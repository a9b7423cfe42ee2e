// Normalize: layer and RMS norms of rows by their definition in float64, and the E4M3 results that
// a next matmul takes as they are.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/normalize_check.h"

namespace gemmd::kernels::contract {
namespace {

// With and without weight and bias by turns that no other loop keeps.
TEST_P(ContractTest, NormalizesRows) {
  Scene seeds;
  for (DType from : kNormalizedTypes) {
    for (DType to : kNormalizedTypes) {
      for (bool centered : {false, true}) {
        for (const Dims& shape :
             {MakeDims({1, 1}), MakeDims({3, 127}), MakeDims({5, 264}), MakeDims({2, 4096}),
              MakeDims({300, 1024}), MakeDims({2, 7, 1088}), MakeDims({1, 33000}),
              MakeDims({2, 16384}), MakeDims({3, 20480})}) {
          if (!Takes()) continue;
          Scene scene(seeds.random()());
          CheckNormalize(scene, executor(),
                         MakeNormalize(scene, {.from = from,
                                               .to = to,
                                               .shape = shape,
                                               .centered = centered,
                                               .weight = scene.Between(0, 1) == 1,
                                               .bias = scene.Between(0, 1) == 1}));
        }
      }
    }
  }
}

TEST_P(ContractTest, QuantisesNormalizedRows) {
  Scene seeds;
  for (DType from : kNormalizedTypes) {
    for (bool centered : {false, true}) {
      for (const Dims& shape : {MakeDims({1, 1}), MakeDims({3, 127}), MakeDims({5, 264}),
                                MakeDims({2, 4096}), MakeDims({130, 1032}), MakeDims({2, 7, 1088}),
                                MakeDims({1, 33000}), MakeDims({2, 16384})}) {
        if (!Takes()) continue;
        Scene scene(seeds.random()());
        CheckNormalize(scene, executor(),
                       MakeNormalize(scene, {.from = from,
                                             .to = DType::kE4M3,
                                             .shape = shape,
                                             .centered = centered,
                                             .weight = scene.Between(0, 1) == 1,
                                             .bias = scene.Between(0, 1) == 1,
                                             .scales = kPlacements[scene.Between(0, 3)]}));
      }
    }
  }
}

// The variance must not be a difference of large sums.
TEST_P(ContractTest, CentersRowsFarFromZero) {
  for (const Dims& shape : {MakeDims({4, 1000}), MakeDims({2, 16384}), MakeDims({1, 33000})}) {
    for (double mean : {1000.0, -3e5}) {
      Scene scene;
      SCOPED_TRACE(mean);
      const NormalizeOp op = MakeNormalize(
          scene, {.from = DType::kF32, .to = DType::kF32, .shape = shape, .centered = true});
      for (int64_t row = 0; row < shape[0]; ++row) {
        for (int64_t col = 0; col < shape[1]; ++col) {
          const double x =
              mean * (1 + std::uniform_real_distribution<double>(-1e-3, 1e-3)(scene.random()));
          scene.Set(op.src, {row, col}, x);
        }
      }
      CheckNormalize(scene, executor(), op);
    }
  }
}

TEST_P(ContractTest, AddsEpsilonToTheVariance) {
  for (bool centered : {false, true}) {
    for (float epsilon : {0.0f, 1e-12f, 0.5f, 1e6f}) {
      Scene scene;
      SCOPED_TRACE(epsilon);
      NormalizeOp op = MakeNormalize(scene, {.from = DType::kF32,
                                             .to = DType::kF32,
                                             .shape = MakeDims({7, 300}),
                                             .centered = centered});
      op.epsilon = epsilon;
      CheckNormalize(scene, executor(), op);
    }
  }
}

TEST_P(ContractTest, NormalizesBetweenAnyPlacements) {
  Scene seeds;
  for (Placement src : kPlacements) {
    for (Placement dst : kPlacements) {
      for (const auto& [to, shape] :
           {std::pair{DType::kBF16, MakeDims({21, 132})}, {DType::kE4M3, MakeDims({3, 7, 264})}}) {
        Scene scene(seeds.random()());
        SCOPED_TRACE(testing::Message() << Name(src) << Name(dst));
        CheckNormalize(scene, executor(),
                       MakeNormalize(scene, {.to = to,
                                             .shape = shape,
                                             .centered = scene.Between(0, 1) == 1,
                                             .src = src,
                                             .dst = dst,
                                             .scales = kPlacements[scene.Between(0, 3)],
                                             .vectors = kPlacements[scene.Between(0, 3)]}));
      }
    }
  }
}

// One number for all columns, one row for all rows, and vectors that are apart or begin anywhere.
TEST_P(ContractTest, NormalizesWithVectorsOfAnyStride) {
  for (DType to : {DType::kF32, DType::kE4M3}) {
    for (Placement vectors : {Placement::kPadded, Placement::kStrided}) {
      Scene scene;
      NormalizeOp op = MakeNormalize(
          scene, {.to = to, .shape = MakeDims({6, 640}), .centered = true, .vectors = vectors});
      CheckNormalize(scene, executor(), op);
      op.weight->strides[0] = 0;
      CheckNormalize(scene, executor(), op);
      op.bias->strides[0] = 0;
      op.src.strides[0] = 0;
      CheckNormalize(scene, executor(), op);
    }
  }
}

TEST_P(ContractTest, ARowOfZerosLeavesTheBias) {
  for (DType to : {DType::kF32, DType::kBF16, DType::kE4M3}) {
    for (bool centered : {false, true}) {
      Scene scene;
      SCOPED_TRACE(Name(to));
      NormalizeOp op =
          MakeNormalize(scene, {.to = to, .shape = MakeDims({3, 256}), .centered = centered});
      for (int64_t col = 0; col < 256; ++col) {
        scene.Set(op.src, {1, col}, 0);
        scene.Set(*op.bias, {col}, col % 8);  // what every type has
      }
      CheckNormalize(scene, executor(), op);
      const Outcome outcome = scene.Run(executor(), Op(op));
      const std::vector<double> dst = Values(outcome, op.dst);
      const double scale = op.scales ? Values(outcome, *op.scales)[2] : 1;
      for (int64_t col = 0; col < 256; ++col) {
        ASSERT_NEAR(dst[256 + col] * scale, col % 8, op.scales ? 0.25 : 0) << col;
      }
      op.bias.reset();
      const Outcome zeros = scene.Run(executor(), Op(op));
      for (int64_t col = 0; col < 256; ++col) ASSERT_EQ(Values(zeros, op.dst)[256 + col], 0);
      if (op.scales) {
        EXPECT_EQ(Values(zeros, *op.scales)[2], 1);
      }
    }
  }
}

// Of a row with NaN nothing is left; all others keep their bits. So they do beside a row of zeros
// that epsilon does not save.
TEST_P(ContractTest, ASpoiltRowSpoilsNoOther) {
  for (DType to : {DType::kF32, DType::kBF16, DType::kE4M3}) {
    for (bool centered : {false, true}) {
      for (double special : {kNaN, kInfinity, -kInfinity, 0.0}) {
        Scene scene;
        SCOPED_TRACE(testing::Message() << Name(to) << " " << special);
        NormalizeOp op =
            MakeNormalize(scene, {.to = to, .shape = MakeDims({5, 264}), .centered = centered});
        op.epsilon = special == 0 ? 0 : 1e-5f;
        const Outcome before = scene.Run(executor(), Op(op));
        for (int64_t col = 0; col < (special == 0 ? 264 : 1); ++col) {
          scene.Set(op.src, {2, col}, special);
        }
        const Outcome after = scene.Run(executor(), Op(op));
        const auto compare = [&](const TensorRef& tensor, bool all_nan) {
          const std::vector<double> was = Values(before, tensor), is = Values(after, tensor);
          const int64_t n = tensor.shape[1];
          for (int64_t i = 0; i < 5 * n; ++i) {
            if (i / n != 2) {
              ASSERT_EQ(is[i], was[i]) << i;
            } else if (all_nan) {
              ASSERT_TRUE(std::isnan(is[i])) << i;
            }
          }
        };
        compare(op.dst, std::isnan(special) || special == 0);
        if (op.scales) compare(*op.scales, std::isnan(special) || special == 0);
      }
    }
  }
}

TEST_P(ContractTest, DoesNothingWhereThereIsNothingToNormalize) {
  for (const Dims& shape : {MakeDims({0, 128}), MakeDims({5, 0}), MakeDims({0, 5, 16})}) {
    for (DType to : {DType::kBF16, DType::kE4M3}) {
      Scene scene(7);
      const Summed summed = to == DType::kBF16 ? Summed::kNot : Summed::kApart;
      const Outcome outcome = scene.Run(
          executor(), Op(MakeNormalize(scene, {.to = to, .shape = shape, .summed = summed})));
      EXPECT_TRUE(outcome.slots == scene.slots());
    }
  }
}

TEST_P(ContractTest, RefusesAnEpsilonBelowZero) {
  Scene scene;
  NormalizeOp op = MakeNormalize(scene, {.shape = MakeDims({4, 96})});
  op.epsilon = -1e-5f;
  const Op ops[] = {op};
  EXPECT_EQ(scene.TryRun(executor(), ops).status().code(), absl::StatusCode::kInvalidArgument);
}

// A norm and the FP8 matmul behind it as one program.
TEST_P(ContractTest, RunsANormAndItsMatmulAsOneProgram) {
  for (int64_t rows : {1, 16, 70}) {
    Scene scene;
    SCOPED_TRACE(rows);
    // The scales column by column, as the FP8 kernels of a GPU read them.
    const NormalizeOp norm = MakeNormalize(
        scene, {.to = DType::kE4M3,
                .shape = MakeDims({rows, 512}),
                .scales = rows % 4 == 0 ? Placement::kTransposed : Placement::kDense});
    MatmulOp matmul;
    matmul.a = {norm.dst, ScaleGranularity::kBlock1x128, norm.scales};
    matmul.b =
        scene.RandomOperand(DType::kE4M3, MakeDims({384, 512}), ScaleGranularity::kBlock128x128);
    matmul.d = scene.Poisoned(DType::kBF16, MakeDims({rows, 384}));
    const Outcome outcome = scene.Run(executor(), {Op(norm), Op(matmul)});

    const std::vector<double> y = NormalizeReference(norm, scene.Reference()).values;
    const std::vector<double> weights = Dequantize(matmul.b, scene.Reference());
    std::vector<double> expected(rows * 384);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < 384; ++j) {
        for (int64_t i = 0; i < 512; ++i) {
          expected[row * 384 + j] += y[row * 512 + i] * weights[j * 512 + i];
        }
      }
    }
    EXPECT_LT(RelativeError(Values(outcome, matmul.d), expected), 0.04);  // one rounding to E4M3
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
