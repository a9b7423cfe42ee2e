// The numbers of matmul: every dtype, granularity, placement and edge.

#include <algorithm>
#include <iterator>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

constexpr ScaleGranularity kGranularities[] = {
    ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow,
    ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128};
constexpr DType kOuts[] = {DType::kF32, DType::kBF16, DType::kF16};

// Every dtype into every output type, in shapes around the tiles of kernels.
void CheckEdges(Executor& executor, DType dtype) {
  Scene seed_scene;
  constexpr int64_t kEdges[] = {1, 2, 7, 16, 31, 63, 64, 65, 127, 128, 129, 257};
  int64_t turn = 0;
  for (int64_t m : kEdges) {
    for (int64_t n : kEdges) {
      Scene scene(seed_scene.random()());
      MatmulCase c{m, n, kEdges[turn % std::size(kEdges)]};
      c.dtype = dtype;
      c.out = kOuts[turn % 3];
      ++turn;
      CheckCase(executor, scene, c);
    }
  }
}

TEST_P(ContractTest, MultipliesF32AtEdgeShapes) { CheckEdges(executor(), DType::kF32); }
TEST_P(ContractTest, MultipliesBF16AtEdgeShapes) { CheckEdges(executor(), DType::kBF16); }
TEST_P(ContractTest, MultipliesF16AtEdgeShapes) { CheckEdges(executor(), DType::kF16); }
TEST_P(ContractTest, MultipliesE4M3AtEdgeShapes) { CheckEdges(executor(), DType::kE4M3); }
TEST_P(ContractTest, MultipliesI8AtEdgeShapes) { CheckEdges(executor(), DType::kI8); }

TEST_P(ContractTest, MultipliesEveryDTypeIntoEveryOutput) {
  for (const DTypeInfo& info : kDTypes) {
    for (DType out : kOuts) {
      Scene scene;
      MatmulCase c{67, 131, 300};
      c.dtype = info.dtype;
      c.out = out;
      CheckCase(executor(), scene, c);
    }
  }
}

TEST_P(ContractTest, AppliesEveryPairOfScaleGranularities) {
  Scene seed_scene;
  for (const DTypeInfo& info : kDTypes) {
    for (ScaleGranularity a : kGranularities) {
      for (ScaleGranularity b : kGranularities) {
        if (!Takes()) continue;
        Scene scene(seed_scene.random()());
        // Neither blocks of 128 rows nor of 128 k's come out even.
        MatmulCase c{131, 259, 389};
        c.dtype = info.dtype;
        c.a_granularity = a;
        c.b_granularity = b;
        CheckCase(executor(), scene, c);
      }
    }
  }
}

TEST_P(ContractTest, AppliesScalesToFewRows) {
  Scene seed_scene;
  for (DType dtype : {DType::kE4M3, DType::kI8}) {
    for (ScaleGranularity a : kGranularities) {
      for (ScaleGranularity b : kGranularities) {
        Scene scene(seed_scene.random()());
        MatmulCase c{scene.Between(1, 9), 150, 1157};
        c.dtype = dtype;
        c.out = DType::kBF16;
        c.a_granularity = a;
        c.b_granularity = b;
        CheckCase(executor(), scene, c);
      }
    }
  }
}

TEST_P(ContractTest, ABatchSharesAScaleOrHasOneEach) {
  for (DType dtype : {DType::kE4M3, DType::kI8}) {
    for (bool a_shares : {false, true}) {
      for (bool b_shares : {false, true}) {
        for (int64_t m : {5, 140}) {
          Scene scene;
          MatmulCase c{m, 130, 257, 3};
          c.dtype = dtype;
          c.a_granularity = c.b_granularity = ScaleGranularity::kPerTensor;
          SCOPED_TRACE(ToString(c));
          MatmulOp op = MakeMatmul(scene, c);
          const Dims alone = MakeDims({257, 1});  // of a matrix that is not batched: [1]
          if (a_shares) op.a.scales = scene.Scales(alone, ScaleGranularity::kPerTensor);
          if (b_shares) op.b.scales = scene.Scales(alone, ScaleGranularity::kPerTensor);
          ExpectMatchesReference(executor(), scene, op);
        }
      }
    }
  }
}

TEST_P(ContractTest, ReadsAndWritesEveryPlacement) {
  Scene seed_scene;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kE4M3, DType::kI8}) {
    for (Placement a : kPlacements) {
      for (Placement b : kPlacements) {
        for (Placement d : kPlacements) {
          if (!Takes()) continue;
          Scene scene(seed_scene.random()());
          MatmulCase c{37, 61, 141};
          c.dtype = dtype;
          c.out = d == Placement::kPadded ? DType::kBF16 : DType::kF32;
          c.a = a;
          c.b = b;
          c.d = d;
          const bool quantised = SizeBytes(dtype) == 1;
          c.a_granularity = quantised ? ScaleGranularity::kBlock1x128 : ScaleGranularity::kNone;
          c.b_granularity = quantised ? ScaleGranularity::kBlock128x128 : ScaleGranularity::kNone;
          CheckCase(executor(), scene, c);
        }
      }
    }
  }
}

TEST_P(ContractTest, MultipliesRandomShapes) {
  Scene seed_scene;
  const int count = GetParam().random_shapes;
  for (int i = 0; i < count; ++i) {
    Scene scene(seed_scene.random()());
    // Squared, so that most are small enough for a float64 check; the last ones are large.
    const auto extent = [&] {
      const int64_t x = scene.Between(1, 1500);
      return i < count - 4 ? std::max<int64_t>(1, x * x / 1500) : std::max<int64_t>(x, 700);
    };
    MatmulCase c{extent(), extent(), extent()};
    c.dtype = kDTypes[i % kDTypes.size()].dtype;
    c.out = kOuts[scene.Between(0, 2)];
    if (SizeBytes(c.dtype) == 1) {
      c.a_granularity = kGranularities[scene.Between(0, 4)];
      c.b_granularity = kGranularities[scene.Between(0, 4)];
    }
    c.a = kPlacements[scene.Between(0, 3)];
    c.b = kPlacements[scene.Between(0, 3)];
    c.d = kPlacements[scene.Between(0, 3)];
    CheckCase(executor(), scene, c);
  }
}

TEST_P(ContractTest, SumsInt8Exactly) {
  Scene seed_scene;
  for (int64_t k : {1, 127, 1024, 1025, 1500, 5003}) {
    Scene scene(seed_scene.random()());
    MatmulCase c{33, 70, k};
    c.dtype = DType::kI8;
    const MatmulOp op = MakeMatmul(scene, c);
    const std::vector<double> expected = ReferenceMatmul(op, scene.Reference());
    const std::vector<double> actual = Values(scene.Run(executor(), Op(op)), op.d);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i], static_cast<double>(static_cast<float>(expected[i])))
          << "element " << i << " at k=" << k << ", seed " << scene.seed();
    }
  }
}

// Of scales that are powers of two nothing is rounded: 128 products in 32-bit integers, their sums
// in FP32.
TEST_P(ContractTest, SumsBlocksOfInt8Exactly) {
  Scene seed_scene;
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{3, 128}, {70, 512}, {200, 400}}) {
    Scene scene(seed_scene.random()());
    MatmulCase c{m, 150, k};
    c.dtype = DType::kI8;
    c.a_granularity = ScaleGranularity::kBlock1x128;
    c.b_granularity = ScaleGranularity::kBlock128x128;
    const MatmulOp op = MakeMatmul(scene, c);
    const std::vector<Op> scale = {FillOp{*op.a.scales, 0.5}, FillOp{*op.b.scales, 4}};
    scene.Replace(scene.Run(executor(), scale));
    const std::vector<double> expected = ReferenceMatmul(op, scene.Reference());
    EXPECT_EQ(Values(scene.Run(executor(), Op(op)), op.d), expected) << "seed " << scene.seed();
    const std::vector<Op> largest = {FillOp{op.a.values, -127}, FillOp{op.b.values, 127}, op};
    for (double value : Values(scene.Run(executor(), largest), op.d)) {
      ASSERT_EQ(value, -127.0 * 127.0 * 2 * k);
    }
  }
}

TEST_P(ContractTest, SumsTheLargestInt8Products) {
  Scene scene;
  MatmulCase c{5, 9, 4099};
  c.dtype = DType::kI8;
  const MatmulOp op = MakeMatmul(scene, c);
  std::vector<Op> ops = {FillOp{op.a.values, -127}, FillOp{op.b.values, -127}, op};
  for (double value : Values(scene.Run(executor(), ops), op.d)) {
    ASSERT_EQ(value, static_cast<double>(static_cast<float>(127.0 * 127.0 * 4099)));
  }
}

TEST_P(ContractTest, MultipliesBatches) {
  Scene seed_scene;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kE4M3, DType::kI8}) {
    for (ScaleGranularity granularity : kGranularities) {
      for (bool shared_b : {false, true}) {
        for (int64_t m : {1, 3, 40}) {
          if (!Takes()) continue;
          Scene scene(seed_scene.random()());
          MatmulCase c{m, 35, 200};
          c.batch = 5;
          c.shared_b = shared_b;
          c.dtype = dtype;
          c.a_granularity = c.b_granularity = granularity;
          c.a = kPlacements[scene.Between(0, 3)];
          c.b = kPlacements[scene.Between(0, 3)];
          c.d = kPlacements[scene.Between(0, 3)];
          CheckCase(executor(), scene, c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
