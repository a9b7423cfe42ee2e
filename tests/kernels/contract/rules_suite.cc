// The rules of matmul beside its numbers: alpha and beta, NaN and infinity, empty extents, aliases.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

MatmulCase Shape(int64_t m, int64_t n, int64_t k, DType dtype = DType::kF32,
                 DType out = DType::kF32) {
  MatmulCase c{m, n, k};
  c.dtype = dtype;
  c.out = out;
  return c;
}

// Shapes that different kernels serve: tiny, few rows, larger than a tile.
const std::vector<MatmulCase>& KernelShapes() {
  static const auto& shapes = *new std::vector<MatmulCase>{
      Shape(5, 7, 9),
      Shape(3, 200, 600),
      Shape(150, 140, 600),
      Shape(4, 300, 700, DType::kBF16, DType::kBF16),
      Shape(130, 70, 700, DType::kE4M3, DType::kBF16),
      Shape(2, 90, 1100, DType::kI8, DType::kF32),
      Shape(66, 90, 1100, DType::kI8, DType::kF32),
  };
  return shapes;
}

TEST_P(ContractTest, AddsAlphaBetaBiasAndActivation) {
  Scene seed_scene;
  for (MatmulCase c : KernelShapes()) {
    for (int flags = 0; flags < 16; ++flags) {
      for (Placement d : kPlacements) {
        if (!Takes()) continue;
        Scene scene(seed_scene.random()());
        SCOPED_TRACE(testing::Message() << ToString(c) << " flags " << flags);
        c.d = d;
        MatmulOp op = MakeMatmul(scene, c);
        op.alpha *= -0.75f;
        if (flags & 1) {
          op.c = scene.Random(c.out, op.d.shape, kPlacements[scene.Between(0, 3)]);
          op.beta = 1.5f;
        }
        if (flags & 2) op.activation = static_cast<Activation>(scene.Between(1, kActivations - 1));
        if (flags & 12) {
          op.bias = scene.Random(flags & 4 ? DType::kF32 : c.out, MakeDims({c.n}),
                                 flags & 8 ? Placement::kStrided : Placement::kDense);
        }
        ExpectMatchesReference(executor(), scene, op);
      }
    }
  }
}

TEST_P(ContractTest, AccumulatesInPlaceWhenCIsD) {
  Scene seed_scene;
  for (MatmulCase c : KernelShapes()) {
    for (Placement d : kPlacements) {
      Scene scene(seed_scene.random()());
      SCOPED_TRACE(ToString(c));
      MatmulOp op = MakeMatmul(scene, c);
      op.d = scene.Random(c.out, op.d.shape, d);
      op.c = op.d;
      op.beta = -0.5f;
      ExpectMatchesReference(executor(), scene, op);
    }
  }
}

TEST_P(ContractTest, DoesNotReadCWhenBetaIsZero) {
  Scene seed_scene;
  for (const MatmulCase& c : KernelShapes()) {
    Scene scene(seed_scene.random()());
    SCOPED_TRACE(ToString(c));
    MatmulOp op = MakeMatmul(scene, c);
    op.c = op.d;  // poison
    ExpectMatchesReference(executor(), scene, op);
    op.c = scene.Poisoned(c.out, op.d.shape);
    ExpectMatchesReference(executor(), scene, op);
  }
}

TEST_P(ContractTest, DoesNotReadAAndBWhenAlphaIsZero) {
  Scene seed_scene;
  for (const MatmulCase& c : KernelShapes()) {
    Scene scene(seed_scene.random()());
    SCOPED_TRACE(ToString(c));
    MatmulOp op = MakeMatmul(scene, c);
    op.a.values = scene.Poisoned(c.dtype, op.a.values.shape);
    op.b.values = scene.Poisoned(c.dtype, op.b.values.shape);
    op.alpha = 0;
    op.c = scene.Random(c.out, op.d.shape);
    op.beta = 2;
    op.bias = scene.Random(DType::kF32, MakeDims({c.n}));
    ExpectMatchesReference(executor(), scene, op);
    op.c.reset();
    op.beta = 0;
    op.bias.reset();
    for (double value : Values(scene.Run(executor(), Op(op)), op.d)) ASSERT_EQ(value, 0);
  }
}

TEST_P(ContractTest, LeavesBetaTimesCPlusBiasWhenKIsZero) {
  Scene seed_scene;
  for (const DTypeInfo& info : kDTypes) {
    Scene scene(seed_scene.random()());
    MatmulOp op = MakeMatmul(scene, Shape(9, 21, 0, info.dtype));
    for (double value : Values(scene.Run(executor(), Op(op)), op.d)) ASSERT_EQ(value, 0);
    op.c = scene.Random(DType::kF32, op.d.shape);
    op.beta = 0.5f;
    op.bias = scene.Random(DType::kF32, MakeDims({21}));
    ExpectMatchesReference(executor(), scene, op);
  }
}

TEST_P(ContractTest, DoesNothingWhenAnOutputExtentIsZero) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 5}, {5, 0}, {0, 0}}) {
    for (const DTypeInfo& info : kDTypes) {
      Scene scene(7);
      MatmulCase c = Shape(m, n, 12, info.dtype);
      scene.Run(executor(), Op(MakeMatmul(scene, c)));
      c.batch = 3;
      scene.Run(executor(), Op(MakeMatmul(scene, c)));
    }
  }
}

// A NaN in row 1 of a makes exactly row 1 of d NaN; in row 2 of b, exactly column 2.
void CheckNaN(Executor& executor, const MatmulCase& c, bool in_a, double bad,
              Activation activation) {
  Scene scene;
  SCOPED_TRACE(testing::Message() << ToString(c) << (in_a ? " in a" : " in b"));
  MatmulOp op = MakeMatmul(scene, c);
  op.activation = activation;
  // Infinity times a 0 among random numbers is NaN, and rightly so.
  for (int64_t i = 0; i < (in_a ? c.n : c.m); ++i) {
    scene.Set(in_a ? op.b.values : op.a.values, {i, c.k - 1}, 1);
  }
  scene.Set(in_a ? op.a.values : op.b.values, {in_a ? 1 : 2, c.k - 1}, bad);
  const std::vector<double> values = Values(scene.Run(executor, Op(op)), op.d);
  for (int64_t i = 0; i < c.m; ++i) {
    for (int64_t j = 0; j < c.n; ++j) {
      const bool touched = in_a ? i == 1 : j == 2;
      const double value = values[i * c.n + j];
      ASSERT_EQ(touched, !std::isfinite(value)) << value << " at " << i << ", " << j;
      ASSERT_EQ(std::isnan(value), touched && std::isnan(bad));
    }
  }
}

TEST_P(ContractTest, CarriesNaNToItsRowOrColumnOnly) {
  for (const MatmulCase& c : KernelShapes()) {
    if (c.dtype == DType::kI8) continue;
    for (bool in_a : {true, false}) CheckNaN(executor(), c, in_a, kNaN, Activation::kNone);
  }
}

TEST_P(ContractTest, KeepsNaNThroughEveryActivation) {
  for (const MatmulCase& c : KernelShapes()) {
    if (c.dtype == DType::kI8) continue;
    for (int activation = 1; activation < kActivations; ++activation) {
      CheckNaN(executor(), c, true, kNaN, static_cast<Activation>(activation));
    }
  }
}

TEST_P(ContractTest, CarriesInfinityToItsRowOrColumnOnly) {
  for (const MatmulCase& c : KernelShapes()) {
    if (SizeBytes(c.dtype) == 1) continue;  // those have none
    for (bool in_a : {true, false}) CheckNaN(executor(), c, in_a, kInfinity, Activation::kNone);
  }
}

TEST_P(ContractTest, CarriesNaNFromScalesCAndBias) {
  for (const MatmulCase& base : KernelShapes()) {
    Scene scene;
    MatmulCase c = base;
    c.a_granularity = ScaleGranularity::kPerRow;
    SCOPED_TRACE(ToString(c));
    MatmulOp op = MakeMatmul(scene, c);
    op.c = scene.Random(c.out, op.d.shape);
    op.beta = 1;
    op.bias = scene.Random(DType::kF32, MakeDims({c.n}));
    scene.Set(*op.a.scales, {0}, kNaN);
    scene.Set(*op.c, {1, 1}, kNaN);
    scene.Set(*op.bias, {2}, kNaN);
    const std::vector<double> values = Values(scene.Run(executor(), Op(op)), op.d);
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        const bool touched = i == 0 || (i == 1 && j == 1) || j == 2;
        ASSERT_EQ(std::isnan(values[i * c.n + j]), touched) << i << ", " << j;
      }
    }
  }
}

TEST_P(ContractTest, GivesTheSameBitsEveryTime) {
  Scene seed_scene;
  std::vector<MatmulCase> cases = KernelShapes();
  cases.push_back(Shape(700, 500, 1300));
  cases.push_back(Shape(600, 700, 900, DType::kE4M3, DType::kBF16));
  for (const MatmulCase& c : cases) {
    Scene scene(seed_scene.random()());
    SCOPED_TRACE(ToString(c));
    const MatmulOp op = MakeMatmul(scene, c);
    const Outcome first = scene.Run(executor(), Op(op));
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(scene.Run(executor(), Op(op)).slots[op.d.slot] == first.slots[op.d.slot]);
    }
  }
}

TEST_P(ContractTest, ReadsRepeatedElementsOfAnInputWithStrideZero) {
  for (const DTypeInfo& info : kDTypes) {
    Scene scene;
    MatmulOp op = MakeMatmul(scene, Shape(40, 50, 60, info.dtype));
    op.a.values.strides = MakeDims({0, 1});  // every row the same
    ExpectMatchesReference(executor(), scene, op);
    op.b.values.strides = MakeDims({0, 0});  // one number
    ExpectMatchesReference(executor(), scene, op);
  }
}

TEST_P(ContractTest, ReadsOverlappingRowsOfAnInput) {
  for (const DTypeInfo& info : kDTypes) {
    Scene scene;
    MatmulOp op = MakeMatmul(scene, Shape(40, 50, 60, info.dtype));
    op.a.values.strides = MakeDims({1, 1});  // a sliding window
    op.b.values.strides = MakeDims({7, 1});
    ExpectMatchesReference(executor(), scene, op);
  }
}

TEST_P(ContractTest, RefusesAnUnknownKernel) {
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Shape(4, 4, 4));
  op.kernel = "no_such_kernel";
  const Op ops[] = {op};
  EXPECT_EQ(scene.TryRun(executor(), ops).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(ContractTest, RefusesAnInvalidOp) {
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Shape(4, 4, 4));
  op.d.strides[0] = -1;
  const Op ops[] = {op};
  EXPECT_EQ(scene.TryRun(executor(), ops).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gemmd::kernels::contract
