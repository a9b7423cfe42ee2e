// Models: the linear layers of public models, as shapes to measure. One half of the models is for
// fitting the cost model, the other to judge it by; the split is by model and stands in models.cc.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "kernels/bench/shape.h"

namespace gemmd::kernels::bench {

enum class Half : uint8_t { kFit, kJudge };

// One linear layer, y[m, n] = x[m, k] . w[n, k]^T. Tensor parallelism divides its n where outputs
// are divided among the ranks, and its k where inputs are.
struct Layer {
  std::string_view name;
  int64_t n = 0;
  int64_t k = 0;
  bool divides_k = false;
};

struct Model {
  std::string_view name;
  Half half = Half::kFit;
  std::vector<Layer> layers;
};
const std::vector<Model>& Models();

// The (n, k) of a model's layers, whole and on each of 2, 4 and 8 ranks.
struct Weights {
  int64_t n = 0;
  int64_t k = 0;
  friend auto operator<=>(const Weights&, const Weights&) = default;
};

// Which of the weights: multiples of 128 both ways, or the others that the kernels take (k a
// multiple of 16, n of 8).
enum class Alignment : uint8_t { kOf128, kOdd };

// Each once, in order. Weights that models of both halves have belong to the half for fitting, so
// that the other half is never seen there. Those above kMaxWeights are left out: they would fill
// the GPU's memory at the bench's eight places.
std::vector<Weights> WeightsOf(Half half, Alignment alignment);
inline constexpr int64_t kMaxWeights = int64_t{1} << 29;  // elements

// The first model of `half` that has these weights, whole or divided; empty when none has.
std::string_view ModelWith(Half half, const Weights& weights);

// Batches from 1 to 4096, odd ones between. Ranges of them are measured equally often.
inline constexpr RowRange kRowRanges[] = {{1, 16}, {17, 64}, {65, 512}, {513, 4096}};
absl::Span<const int64_t> ModelRows();

// `count` shapes, or all there are, none twice: random weights by random rows, drawn from `seed`.
// The ranges of rows take turns, so that the first shapes of a run that is cut are as mixed as all.
// A shape has at most 2^40 flops, about a millisecond.
std::vector<Shape> ModelShapes(absl::Span<const Weights> weights, int count, uint64_t seed);

}  // namespace gemmd::kernels::bench
