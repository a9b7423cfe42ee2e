// Normalize: the sums that are normalised in place of rows.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/normalize_check.h"

namespace gemmd::kernels::contract {
namespace {

// Small shapes: the reference rounds by search.
TEST_P(ContractTest, NormalizesSums) {
  Scene seeds;
  for (DType from : kNormalizedTypes) {
    for (DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3}) {
      for (bool centered : {false, true}) {
        for (Summed summed : kSummed) {
          for (const Dims& shape : {MakeDims({3, 127}), MakeDims({2, 3, 136})}) {
            if (!Takes()) continue;
            Scene scene(seeds.random()());
            CheckNormalize(scene, executor(),
                           MakeNormalize(scene, {.from = from,
                                                 .to = to,
                                                 .shape = shape,
                                                 .centered = centered,
                                                 .weight = scene.Between(0, 1) == 1,
                                                 .bias = scene.Between(0, 1) == 1,
                                                 .summed = summed}));
          }
        }
      }
    }
  }
}

// Rows that threads share in each of a kernel's ways, and more rows than lie in one pass of them.
TEST_P(ContractTest, NormalizesSumsOfEveryLength) {
  Scene seeds;
  for (DType from : {DType::kF32, DType::kBF16}) {
    for (Summed summed : {Summed::kApart, Summed::kOverSrc}) {
      for (const Dims& shape : {MakeDims({1, 1}), MakeDims({3, 2056}), MakeDims({1, 16384}),
                                MakeDims({300, 24}), MakeDims({1, 33000})}) {
        if (!Takes()) continue;
        Scene scene(seeds.random()());
        CheckNormalize(scene, executor(),
                       MakeNormalize(scene, {.from = from,
                                             .to = scene.Between(0, 1) == 1 ? DType::kE4M3 : from,
                                             .shape = shape,
                                             .centered = true,
                                             .summed = summed}));
      }
    }
  }
}

TEST_P(ContractTest, NormalizesSumsBetweenAnyPlacements) {
  Scene seeds;
  for (Placement addend : kPlacements) {
    for (Placement other : kPlacements) {
      for (Summed summed : kSummed) {
        if (!Takes()) continue;
        Scene scene(seeds.random()());
        SCOPED_TRACE(testing::Message() << Name(addend) << Name(other));
        // Of a sum apart the placement has its turn, of one in place src's.
        const bool apart = summed == Summed::kApart;
        const bool quantised = scene.Between(0, 1) == 1;
        CheckNormalize(
            scene, executor(),
            MakeNormalize(scene, {.to = quantised ? DType::kE4M3 : DType::kBF16,
                                  .shape = quantised ? MakeDims({2, 3, 136}) : MakeDims({9, 132}),
                                  .centered = scene.Between(0, 1) == 1,
                                  .src = apart ? kPlacements[scene.Between(0, 3)] : other,
                                  .dst = kPlacements[scene.Between(0, 3)],
                                  .scales = kPlacements[scene.Between(0, 3)],
                                  .vectors = kPlacements[scene.Between(0, 3)],
                                  .summed = summed,
                                  .addend = addend,
                                  .sum = other}));
      }
    }
  }
}

// src and addend may be one, or one row for all rows.
TEST_P(ContractTest, SumsWhatRepeatsItself) {
  for (DType from : {DType::kF32, DType::kF16}) {
    Scene scene;
    NormalizeOp op =
        MakeNormalize(scene, {.from = from, .shape = MakeDims({4, 136}), .summed = Summed::kApart});
    op.addend->strides[0] = 0;
    CheckNormalize(scene, executor(), op);
    op.addend = op.src;
    CheckNormalize(scene, executor(), op);
    op.sum = op.src;
    CheckNormalize(scene, executor(), op);
  }
}

// To infinity and to NaN, among the least numbers there are, and to zero.
TEST_P(ContractTest, SumsAreRoundedAtEveryEnd) {
  for (DType from : kNormalizedTypes) {
    const double most = from == DType::kF16    ? 65504
                        : from == DType::kBF16 ? 0x1.fep127
                                               : 0x1.fffffep127;
    const double least = from == DType::kF16 ? 0x1p-24 : from == DType::kBF16 ? 0x1p-133 : 0x1p-149;
    const std::pair<double, double> pairs[] = {
        {kNaN, 1},    {kInfinity, -kInfinity}, {kInfinity, 1}, {-most, -most}, {most, -most},
        {most, 1},    {least, least},          {-least, 0.0},  {0.0, -0.0},    {-0.0, -0.0},
        {least, 0.5}, {1, -0x1.fp-12}};
    for (int64_t n : {130, 136}) {
      Scene scene;
      SCOPED_TRACE(testing::Message() << Name(from) << " " << n);
      const NormalizeOp op = MakeNormalize(scene, {.from = from,
                                                   .to = DType::kF32,
                                                   .shape = MakeDims({std::ssize(pairs), n}),
                                                   .summed = Summed::kApart});
      for (int64_t row = 0; const auto& [x, addend] : pairs) {
        scene.Set(op.src, {row, n - 1}, x);
        scene.Set(*op.addend, {row++, n - 1}, addend);
      }
      const Outcome outcome = scene.Run(executor(), Op(op));
      CheckWrites(scene, outcome, op);
      const NormalizedRows expected = NormalizeReference(op, scene.Reference());
      CheckSum(outcome, *op.sum, expected.x);
      const std::vector<double> dst = Values(outcome, op.dst);
      for (size_t i = 0; i < dst.size(); i += n) {
        EXPECT_EQ(std::isnan(dst[i + n - 1]), !std::isfinite(expected.x[i + n - 1])) << i / n;
      }
    }
  }
}

// As a residual stream runs through a model's blocks.
TEST_P(ContractTest, ASumThatIsCarriedOnIsTheNextNormsSource) {
  for (DType from : kNormalizedTypes) {
    for (int64_t n : {130, 264}) {
      Scene scene;
      SCOPED_TRACE(testing::Message() << Name(from) << " " << n);
      const Dims shape = MakeDims({19, n});
      const NormalizeOp first = MakeNormalize(
          scene, {.from = from, .to = from, .shape = shape, .summed = Summed::kOverSrc});
      NormalizeOp second = first;
      second.addend = scene.Random(from, shape);
      second.dst = scene.Poisoned(from, shape);
      const Outcome both = scene.Run(executor(), {Op(first), Op(second)});
      scene.Replace(scene.Run(executor(), Op(first)));
      CheckNormalize(scene, executor(), second);
      EXPECT_TRUE(both.slots == scene.Run(executor(), Op(second)).slots);
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
