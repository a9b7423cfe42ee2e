// Normalize: layer and RMS norms of rows by their definition in float64, the sums that are
// normalised in place of rows, and the E4M3 results that a next matmul takes as they are.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

constexpr DType kNormalizedTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

enum class Summed {
  kNot,         // no addend
  kUnkept,      // an addend, no sum
  kApart,       // a sum of its own
  kOverSrc,     // the sum is src
  kOverAddend,  // the sum is the addend
};
constexpr Summed kSums[] = {Summed::kUnkept, Summed::kApart, Summed::kOverSrc, Summed::kOverAddend};

struct NormalizeCase {
  DType from = DType::kBF16;
  DType to = DType::kBF16;
  Dims shape = MakeDims({1, 1});
  bool centered = false;
  bool weight = true;
  bool bias = true;
  Placement src = Placement::kDense;
  Placement dst = Placement::kDense;
  Placement scales = Placement::kDense;
  Placement vectors = Placement::kDense;  // weight and bias
  Summed summed = Summed::kNot;
  Placement addend = Placement::kDense;
  Placement sum = Placement::kDense;  // of one apart
};

NormalizeOp MakeNormalize(Scene& scene, const NormalizeCase& c) {
  NormalizeOp op;
  op.src = scene.Random(c.from, c.shape, c.src);
  op.dst = scene.Poisoned(c.to, c.shape, c.dst);
  if (c.to == DType::kE4M3) {
    op.scales =
        scene.Poisoned(DType::kF32, ScaleShape(c.shape, ScaleGranularity::kBlock1x128), c.scales);
  }
  const Dims columns = MakeDims({c.shape[c.shape.rank - 1]});
  if (c.weight) op.weight = scene.Random(DType::kF32, columns, c.vectors);
  if (c.bias) op.bias = scene.Random(DType::kF32, columns, c.vectors);
  op.centered = c.centered;
  if (c.summed != Summed::kNot) op.addend = scene.Random(c.from, c.shape, c.addend);
  if (c.summed == Summed::kApart) op.sum = scene.Poisoned(c.from, c.shape, c.sum);
  if (c.summed == Summed::kOverSrc) op.sum = op.src;
  if (c.summed == Summed::kOverAddend) op.sum = op.addend;
  return op;
}

std::string ToString(const NormalizeOp& op) {
  return std::string(Name(op.src.dtype)) + " to " + std::string(Name(op.dst.dtype)) + " " +
         kernels::ToString(op.dst.shape) + (op.centered ? " centered" : "") +
         (op.weight ? " weight" : "") + (op.bias ? " bias" : "") + (op.addend ? " addend" : "") +
         (op.sum ? " sum in slot " + std::to_string(op.sum->slot) : "");
}

int64_t Columns(const NormalizeOp& op) { return op.dst.shape[op.dst.shape.rank - 1]; }

// What is normalised: src, or the sums as their type has them.
std::vector<double> Summands(const NormalizeOp& op, const Bindings& bindings) {
  std::vector<double> x = ReadTensor(op.src, bindings);
  if (!op.addend) return x;
  const std::vector<double> addend = ReadTensor(*op.addend, bindings);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = DecodeReference(op.src.dtype, EncodeReference(op.src.dtype, x[i] + addend[i]));
  }
  return x;
}

// dst in float64, unrounded, and what sums in FP32 may add to each element.
struct Expected {
  std::vector<double> x, values, slack;
};

Expected Reference(const NormalizeOp& op, const Bindings& bindings) {
  const int64_t n = Columns(op);
  const std::vector<double> x = Summands(op, bindings);
  const auto vector = [&](const std::optional<TensorRef>& given, double otherwise) {
    return given ? ReadTensor(*given, bindings) : std::vector<double>(n, otherwise);
  };
  const std::vector<double> weight = vector(op.weight, 1), bias = vector(op.bias, 0);
  Expected expected{.x = x};
  for (size_t row = 0; row < x.size(); row += n) {
    double sum = 0, magnitude = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += x[row + i];
      magnitude += std::abs(x[row + i]) / n;
    }
    const double mean = op.centered ? sum / n : 0;
    for (int64_t i = 0; i < n; ++i) squares += (x[row + i] - mean) * (x[row + i] - mean) / n;
    const double deviation = std::sqrt(squares + op.epsilon);
    // A mean in FP32 is off by some of its last places, however little the row deviates from it.
    const double off = op.centered ? magnitude / deviation * 0x1p-20 : 0;
    for (int64_t i = 0; i < n; ++i) {
      const double y = (x[row + i] - mean) / deviation;
      expected.values.push_back(y * weight[i] + bias[i]);
      expected.slack.push_back((std::abs(y) * 0x1p-16 + off) * std::abs(weight[i]) +
                               std::abs(bias[i]) * 0x1p-22 + 1e-30);
    }
  }
  return expected;
}

// What rounding a value to `dtype` may add.
double HalfStep(DType dtype, double value) {
  if (dtype == DType::kBF16) return std::abs(value) * 0x1p-8;
  if (dtype == DType::kF16) return std::abs(value) * 0x1p-11 + 0x1p-25;
  return 0;
}

// A scale is the largest magnitude of its block over 448, and a code times it as near as E4M3 has.
void CheckQuantised(const Outcome& outcome, const NormalizeOp& op, const Expected& expected) {
  const int64_t n = Columns(op);
  const std::vector<double> dst = Values(outcome, op.dst);
  const std::vector<double> scales = Values(outcome, *op.scales);
  ASSERT_EQ(dst.size(), expected.values.size());
  size_t block = 0;
  for (size_t row = 0; row < dst.size(); row += n) {
    for (int64_t col = 0; col < n; col += kScaleBlock, ++block) {
      const size_t begin = row + col, end = row + std::min(col + kScaleBlock, n);
      double amax = 0, slack = 0;
      for (size_t i = begin; i < end; ++i) {
        amax = std::max(amax, std::abs(expected.values[i]));
        slack = std::max(slack, expected.slack[i]);
      }
      const double scale = scales[block];
      ASSERT_GT(scale, 0) << "block " << block;
      if (amax > slack) {
        ASSERT_NEAR(scale, amax / 448, (slack + amax * 0x1p-22) / 448) << "block " << block;
      }
      for (size_t i = begin; i < end; ++i) {
        const double most = std::abs(expected.values[i]) + expected.slack[i];
        const double rounding = std::max(most * 0x1p-4, scale * 0x1p-10) * 1.001;
        ASSERT_NEAR(dst[i] * scale, expected.values[i], rounding + expected.slack[i])
            << "element " << i << ", scale " << scale;
      }
    }
  }
}

// Any NaN is as good as another; all else to the bit.
void CheckSum(const Outcome& outcome, const TensorRef& sum, const std::vector<double>& expected) {
  const std::vector<double> x = Values(outcome, sum);
  ASSERT_EQ(x.size(), expected.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(x[i])) continue;
    ASSERT_EQ(x[i], expected[i]) << "element " << i << " of the sum";
    ASSERT_EQ(std::signbit(x[i]), std::signbit(expected[i])) << "element " << i << " of the sum";
  }
}

// Of all slots.
void CheckWrites(const Scene& scene, const Outcome& outcome, const NormalizeOp& op) {
  std::vector<bool> written(scene.slots().size());
  const auto check = [&](const TensorRef& tensor) {
    ExpectOnlyElementsWritten(scene, outcome, tensor);
    written[tensor.slot] = true;
  };
  check(op.dst);
  if (op.scales) check(*op.scales);
  if (op.sum) check(*op.sum);
  for (size_t slot = 0; slot < written.size(); ++slot) {
    if (written[slot]) continue;
    EXPECT_TRUE(outcome.slots[slot] == scene.slots()[slot]) << "slot " << slot << " was written";
  }
}

// Holds each element against float64.
void Check(Scene& scene, Executor& executor, const NormalizeOp& op) {
  SCOPED_TRACE(ToString(op));
  const Outcome outcome = scene.Run(executor, Op(op));
  const Expected expected = Reference(op, scene.Reference());
  CheckWrites(scene, outcome, op);
  if (op.sum) CheckSum(outcome, *op.sum, expected.x);
  if (op.scales) return CheckQuantised(outcome, op, expected);
  const std::vector<double> dst = Values(outcome, op.dst);
  ASSERT_EQ(dst.size(), expected.values.size());
  for (size_t i = 0; i < dst.size(); ++i) {
    const double value = expected.values[i];
    ASSERT_NEAR(dst[i], value, expected.slack[i] + HalfStep(op.dst.dtype, value) * 1.01)
        << "element " << i;
  }
}

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
          Check(scene, executor(),
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
        Check(scene, executor(),
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
      Check(scene, executor(), op);
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
      Check(scene, executor(), op);
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
        Check(scene, executor(),
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

// Small shapes: the reference rounds by search.
TEST_P(ContractTest, NormalizesSums) {
  Scene seeds;
  for (DType from : kNormalizedTypes) {
    for (DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3}) {
      for (bool centered : {false, true}) {
        for (Summed summed : kSums) {
          for (const Dims& shape : {MakeDims({3, 127}), MakeDims({2, 3, 136})}) {
            if (!Takes()) continue;
            Scene scene(seeds.random()());
            Check(scene, executor(),
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
        Check(scene, executor(),
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
      for (Summed summed : kSums) {
        if (!Takes()) continue;
        Scene scene(seeds.random()());
        SCOPED_TRACE(testing::Message() << Name(addend) << Name(other));
        // Of a sum apart the placement has its turn, of one in place src's.
        const bool apart = summed == Summed::kApart;
        const bool quantised = scene.Between(0, 1) == 1;
        Check(scene, executor(),
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
    Check(scene, executor(), op);
    op.addend = op.src;
    Check(scene, executor(), op);
    op.sum = op.src;
    Check(scene, executor(), op);
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
      const Expected expected = Reference(op, scene.Reference());
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
      Check(scene, executor(), second);
      EXPECT_TRUE(both.slots == scene.Run(executor(), Op(second)).slots);
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
      Check(scene, executor(), op);
      op.weight->strides[0] = 0;
      Check(scene, executor(), op);
      op.bias->strides[0] = 0;
      op.src.strides[0] = 0;
      Check(scene, executor(), op);
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
      Check(scene, executor(), op);
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

    const std::vector<double> y = Reference(norm, scene.Reference()).values;
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
