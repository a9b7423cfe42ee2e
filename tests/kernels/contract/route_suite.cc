// What surrounds grouped matmuls: rows to their experts, gathered while they are quantised, and
// summed by their weights.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gmock/gmock.h"
#include "kernels/cpu/matmul/reference.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {
namespace {

using testing::HasSubstr;

std::vector<int32_t> RandomIds(Scene& scene, int64_t count, int64_t experts, bool skewed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t high = skewed ? scene.Between(0, experts - 1) : experts - 1;
    ids.push_back(static_cast<int32_t>(scene.Between(-1, high)));
  }
  return ids;
}

RouteOp MakeRoute(Scene& scene, int64_t tokens, int64_t top_k, int64_t experts,
                  absl::Span<const int32_t> ids) {
  return {.ids = scene.Numbers(MakeDims({tokens, top_k}), ids),
          .offsets = scene.Poisoned(DType::kI32, MakeDims({experts + 1})),
          .rows = scene.Poisoned(DType::kI32, MakeDims({tokens * top_k})),
          .positions = scene.Poisoned(DType::kI32, MakeDims({tokens, top_k}))};
}

TEST_P(ContractTest, RoutesRowsByExpertThenByToken) {
  for (const auto& [tokens, top_k, experts] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                               {7, 2, 3},
                                               {64, 8, 256},
                                               {300, 8, 512},
                                               {1000, 6, 17},
                                               {3000, 4, 160}}) {
    for (bool skewed : {false, true}) {
      Scene scene;
      const std::vector<int32_t> ids = RandomIds(scene, tokens * top_k, experts, skewed);
      const RouteOp op = MakeRoute(scene, tokens, top_k, experts, ids);
      const Outcome outcome = scene.Run(executor(), Op(op));
      std::vector<double> offsets(experts + 1, 0), rows(ids.size(), -1), positions(ids.size(), -1);
      size_t at = 0;
      for (int64_t e = 0; e < experts; ++e) {
        offsets[e] = static_cast<double>(at);
        for (size_t i = 0; i < ids.size(); ++i) {
          if (ids[i] != e) continue;
          rows[at] = static_cast<double>(static_cast<int64_t>(i) / top_k);
          positions[i] = static_cast<double>(at++);
        }
      }
      offsets[experts] = static_cast<double>(at);
      EXPECT_EQ(Values(outcome, op.offsets), offsets);
      EXPECT_EQ(Values(outcome, op.rows), rows);
      EXPECT_EQ(Values(outcome, op.positions), positions);
    }
  }
}

TEST_P(ContractTest, ExpertsThatAreNoneEndTheRun) {
  for (int32_t bad : {-2, 4, 0x7fffffff, -0x7fffffff}) {
    Scene scene;
    std::vector<int32_t> ids = {0, 1, 2, 3, 0, 1};
    ids[3] = bad;
    const RouteOp op = MakeRoute(scene, 3, 2, 4, ids);
    const absl::StatusOr<Outcome> outcome = scene.TryRun(executor(), {Op(op)});
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()),
                HasSubstr("(route): ids[3]=" + std::to_string(bad)));
  }
}

// Bit for bit what Quantize makes of the rows once they are copied.
TEST_P(ContractTest, QuantisesRowsWhereTheyLie) {
  for (ScaleGranularity granularity : {ScaleGranularity::kBlock1x128, ScaleGranularity::kPerRow}) {
    for (const auto& [rows, k, from] : {std::tuple<int64_t, int64_t, int64_t>{1, 128, 1},
                                        {40, 512, 9},
                                        {33, 200, 50},
                                        {130, 1032, 64}}) {
      for (DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
        for (Placement placement : {Placement::kDense, Placement::kTransposed}) {
          Scene scene;
          const Dims shape = MakeDims({rows, k});
          const TensorRef src = scene.Random(dtype, MakeDims({from, k}), placement);
          std::vector<int32_t> numbers;
          for (int64_t i = 0; i < rows; ++i) {
            numbers.push_back(static_cast<int32_t>(scene.Between(-1, from - 1)));
          }
          QuantizeOp op{src, scene.Poisoned(DType::kE4M3, shape),
                        scene.Poisoned(DType::kF32, ScaleShape(shape, granularity)), granularity,
                        scene.Numbers(MakeDims({rows}), numbers)};
          QuantizeOp whole = op;
          whole.dst = scene.Poisoned(DType::kE4M3, src.shape);
          whole.scales = scene.Poisoned(DType::kF32, ScaleShape(src.shape, granularity));
          whole.rows.reset();
          const Outcome outcome = scene.Run(executor(), {Op(op), Op(whole)});
          const std::vector<double> dst = Values(outcome, op.dst);
          const std::vector<double> scales = Values(outcome, op.scales);
          const std::vector<double> all = Values(outcome, whole.dst);
          const std::vector<double> all_scales = Values(outcome, whole.scales);
          const auto blocks = static_cast<int64_t>(scales.size()) / rows;
          for (int64_t i = 0; i < rows; ++i) {
            const int64_t source = numbers[i];
            for (int64_t j = 0; j < k; ++j) {
              if (source < 0) {
                ASSERT_TRUE(std::isnan(dst[i * k + j])) << "row " << i << " is none";
              } else {
                ASSERT_EQ(dst[i * k + j], all[source * k + j]) << "row " << i << " column " << j;
              }
            }
            for (int64_t j = 0; j < blocks; ++j) {
              if (source < 0) {
                ASSERT_TRUE(std::isnan(scales[i * blocks + j]));
              } else {
                ASSERT_EQ(scales[i * blocks + j], all_scales[source * blocks + j]);
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(ContractTest, RowsThatSourcesLackEndTheRun) {
  for (int32_t bad : {-2, 3, 0x7fffffff}) {
    Scene scene;
    const QuantizeOp op{scene.Random(DType::kBF16, MakeDims({3, 256})),
                        scene.Poisoned(DType::kE4M3, MakeDims({2, 256})),
                        scene.Poisoned(DType::kF32, MakeDims({2, 2})),
                        ScaleGranularity::kBlock1x128, scene.Numbers(MakeDims({2}), {1, bad})};
    absl::StatusOr<Outcome> outcome = scene.TryRun(executor(), {Op(op)});
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()),
                HasSubstr("(quantize): rows[1]=" + std::to_string(bad)));
    const CombineOp combine{.src = op.src,
                            .positions = scene.Numbers(MakeDims({2, 1}), {1, bad}),
                            .weights = scene.Random(DType::kF32, MakeDims({2, 1})),
                            .dst = scene.Poisoned(DType::kBF16, MakeDims({2, 256}))};
    outcome = scene.TryRun(executor(), {Op(combine)});
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument) << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()),
                HasSubstr("(combine): positions[1]=" + std::to_string(bad)));
  }
}

TEST_P(ContractTest, CombinesRowsByTheirWeights) {
  constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF16};
  Scene seeds;
  for (const auto& [tokens, top_k, n] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                         {5, 2, 129},
                                         {64, 8, 512},
                                         {3, 6, 1096},
                                         {1030, 2, 520},
                                         {1027, 5, 600},
                                         {300, 3, 1040},
                                         {77, 4, 264},
                                         {1025, 1, 3600},
                                         {2, 1, 7168}}) {
    for (DType from : kFloats) {
      for (DType to : kFloats) {
        if (!Takes()) continue;
        Scene scene(seeds.random()());
        const int64_t rows = tokens * top_k;
        std::vector<int32_t> places;
        for (int64_t i = 0; i < rows; ++i) {
          places.push_back(static_cast<int32_t>(scene.Between(-1, rows - 1)));
        }
        const CombineOp op{
            .src = scene.Random(from, MakeDims({rows, n}), kPlacements[scene.Between(0, 3)]),
            .positions = scene.Numbers(MakeDims({tokens, top_k}), places),
            .weights = scene.Random(DType::kF32, MakeDims({tokens, top_k})),
            .dst = scene.Poisoned(to, MakeDims({tokens, n}), kPlacements[scene.Between(0, 3)])};
        const Outcome outcome = scene.Run(executor(), Op(op));
        const Bindings bindings = scene.Reference();
        const std::vector<double> src = ReadTensor(op.src, bindings);
        const std::vector<double> weights = ReadTensor(op.weights, bindings);
        const std::vector<double> dst = Values(outcome, op.dst);
        for (int64_t t = 0; t < tokens; ++t) {
          for (int64_t i = 0; i < n; ++i) {
            double sum = 0, magnitude = 0;
            for (int64_t j = 0; j < top_k; ++j) {
              if (places[t * top_k + j] < 0) continue;
              const double x = weights[t * top_k + j] * src[places[t * top_k + j] * n + i];
              sum += x;
              magnitude += std::abs(x);
            }
            const double rounding = to == DType::kBF16 ? 0x1p-8 : to == DType::kF16 ? 0x1p-11 : 0;
            ASSERT_NEAR(dst[t * n + i], sum, magnitude * 0x1p-20 + std::abs(sum) * rounding + 1e-7)
                << "token " << t << " column " << i;
          }
        }
        ExpectOnlyElementsWritten(scene, outcome, op.dst);
      }
    }
  }
}

// A whole layer of experts as one program: routed, gathered, multiplied, gated, multiplied and
// combined; against float64 of what was quantised in between, loosely.
TEST_P(ContractTest, ALayerOfExpertsIsOneProgram) {
  Scene scene;
  const int64_t tokens = 40, top_k = 2, experts = 6, hidden = 256, inner = 384;
  const int64_t rows = tokens * top_k;
  constexpr ScaleGranularity kRows = ScaleGranularity::kBlock1x128;
  constexpr ScaleGranularity kSquares = ScaleGranularity::kBlock128x128;
  const auto poisoned = [&](const Dims& shape) {
    return Operand{scene.Poisoned(DType::kE4M3, shape), kRows,
                   scene.Poisoned(DType::kF32, ScaleShape(shape, kRows))};
  };
  const RouteOp route =
      MakeRoute(scene, tokens, top_k, experts, RandomIds(scene, rows, experts, true));
  const TensorRef x = scene.Random(DType::kBF16, MakeDims({tokens, hidden}));
  const Operand gathered = poisoned(MakeDims({rows, hidden}));
  const Operand inside = poisoned(MakeDims({rows, inner}));
  const Operand up =
      scene.RandomOperand(DType::kE4M3, MakeDims({experts, 2 * inner, hidden}), kSquares);
  const Operand down =
      scene.RandomOperand(DType::kE4M3, MakeDims({experts, hidden, inner}), kSquares);
  GroupedMatmulOp first{.a = gathered, .b = up, .groups = route.offsets, .d = inside.values};
  first.d_scales = inside.scales;
  first.gate = Gate{};
  first.alpha = 1e-4f;
  const TensorRef expanded = scene.Poisoned(DType::kBF16, MakeDims({rows, hidden}));
  const GroupedMatmulOp second{.a = inside, .b = down, .groups = route.offsets, .d = expanded};
  const CombineOp combine{.src = expanded,
                          .positions = route.positions,
                          .weights = scene.Random(DType::kF32, MakeDims({tokens, top_k})),
                          .dst = scene.Poisoned(DType::kBF16, MakeDims({tokens, hidden}))};
  const Outcome outcome =
      scene.Run(executor(),
                {Op(route), Op(QuantizeOp{x, gathered.values, *gathered.scales, kRows, route.rows}),
                 Op(first), Op(second), Op(combine)});

  const Bindings bindings = scene.Reference();
  const std::vector<double> in = ReadTensor(x, bindings),
                            ids = ReadTensor(combine.weights, bindings);
  const std::vector<double> of_up = Dequantize(up, bindings), of_down = Dequantize(down, bindings);
  const std::vector<double> dst = Values(outcome, combine.dst);
  std::vector<int32_t> chosen(rows);
  std::memcpy(chosen.data(), scene.slots()[route.ids.slot].data(), rows * sizeof(int32_t));
  double error = 0, norm = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> sum(hidden, 0);
    for (int64_t j = 0; j < top_k; ++j) {
      const int64_t e = chosen[t * top_k + j];
      if (e < 0) continue;
      std::vector<double> product(2 * inner, 0), y(inner);
      for (int64_t i = 0; i < 2 * inner; ++i) {
        for (int64_t k = 0; k < hidden; ++k) {
          product[i] += in[t * hidden + k] * of_up[(e * 2 * inner + i) * hidden + k];
        }
        product[i] *= first.alpha;
      }
      for (int64_t i = 0; i < inner; ++i) {
        y[i] = ReferenceActivation(Activation::kSilu, product[i]) * product[inner + i];
      }
      for (int64_t i = 0; i < hidden; ++i) {
        double out = 0;
        for (int64_t k = 0; k < inner; ++k) {
          out += y[k] * of_down[(e * hidden + i) * inner + k];
        }
        sum[i] += ids[t * top_k + j] * out;
      }
    }
    for (int64_t i = 0; i < hidden; ++i) {
      const double difference = dst[t * hidden + i] - sum[i];
      error += difference * difference;
      norm += sum[i] * sum[i];
    }
  }
  EXPECT_LE(std::sqrt(error), 0.06 * std::sqrt(norm));
}

}  // namespace
}  // namespace gemmd::kernels::contract
