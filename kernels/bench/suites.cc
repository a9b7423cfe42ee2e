#include "kernels/bench/suites.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/bench/models.h"
#include "kernels/text.h"

namespace gemmd::kernels::bench {
namespace {

constexpr double kMaxRandomFlops = 137438953472.0;  // 2^37: about 0.1 ms of an H200
constexpr double kMaxBroadFlops = 274877906944.0;   // 2^38
constexpr int64_t kMaxNarrowElements = int64_t{1} << 28;
constexpr uint64_t kJudgeSeed = 1000003;  // on top: the halves have other random weights

// Uniform in the logarithm, from `low` to `high`; from the generator's own bits, because standard
// distributions differ between libraries and a seed must name the same shapes everywhere.
int64_t LogUniform(std::mt19937_64& random, double low, double high) {
  const double u = static_cast<double>(random() >> 11) * 0x1p-53;
  return std::llround(low * std::pow(high / low, u));
}

int64_t RoundTo16(int64_t x) { return std::max<int64_t>(16, (x + 8) / 16 * 16); }
int64_t RoundTo64(std::mt19937_64& random, double low, double high) {
  return (LogUniform(random, low, high) + 32) / 64 * 64;
}

// `count` shapes as a service meets them, its ranges of rows in turns: any number of rows, every
// other time a tile's or one more or less; of the `weights`, every third time random ones. None of
// the 44.
std::vector<Shape> BroadShapes(absl::Span<const Weights> weights, int count, uint64_t seed) {
  const std::vector<Shape> dense = Dense44();
  std::mt19937_64 random(seed);
  std::vector<Shape> shapes;
  while (static_cast<int>(shapes.size()) < count) {
    const RowRange& rows = kRowRanges[shapes.size() % std::size(kRowRanges)];
    int64_t m = LogUniform(random, rows.least, rows.most);
    if (random() % 2 == 0) {
      const int64_t tile = m < 64 ? 8 : m < 512 ? 16 : 64;
      m = std::max<int64_t>(1, m / tile) * tile - 1 + static_cast<int64_t>(random() % 3);
    }
    Weights w = weights[random() % weights.size()];
    if (random() % 3 == 0) w = {RoundTo64(random, 256, 32768), RoundTo64(random, 256, 16384)};
    const Shape shape{m, w.n, w.k};
    const bool fits = w.n * w.k <= kMaxWeights && shape.flops() <= kMaxBroadFlops;
    if (fits && !absl::c_linear_search(dense, shape)) shapes.push_back(shape);
  }
  return shapes;
}

// What models of language hardly have: few columns (routers, ranks of adapters, heads), few k,
// small layers of vision, and rows beyond a prefill's. These four take turns, the ranges of rows
// slower. No weights that models of the other half have.
std::vector<Shape> NarrowShapes(Half half, int count, uint64_t seed) {
  constexpr RowRange kRows[] = {{1, 64}, {65, 1024}, {1025, 8192}, {8193, 131072}};
  const Half other = half == Half::kFit ? Half::kJudge : Half::kFit;
  std::mt19937_64 random(seed + (half == Half::kJudge ? kJudgeSeed : 0));
  // Multiples of 64 and, every third time, of 16.
  const auto draw = [&random](double low, double high) {
    const int64_t x = LogUniform(random, low, high);
    return random() % 3 == 0 || x < 64 ? RoundTo16(x) : (x + 32) / 64 * 64;
  };
  std::vector<Shape> shapes;
  for (int turn = 0; static_cast<int>(shapes.size()) < count; ++turn) {
    const RowRange& rows = kRows[turn / 4 % std::size(kRows)];
    const int64_t m = LogUniform(random, rows.least, rows.most);
    Shape shape;
    switch (turn % 4) {
      case 0:
        shape = {m, draw(8, 512), draw(128, 16384)};
        break;
      case 1:
        shape = {m, draw(128, 16384), draw(16, 512)};
        break;
      case 2:
        shape = {m, draw(64, 1536), draw(64, 1536)};
        break;
      default:
        shape = {LogUniform(random, 4097, 131072), draw(256, 8192), draw(256, 8192)};
    }
    const int64_t elements = shape.m * (shape.n + shape.k) + shape.n * shape.k;
    if (elements > kMaxNarrowElements || shape.flops() > kMaxBroadFlops) continue;
    if (ModelWith(other, {shape.n, shape.k}).empty()) shapes.push_back(shape);
  }
  return shapes;
}

// Takes `prefix` off `text` if it begins so.
bool Consume(std::string_view prefix, std::string_view& text) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "models", and behind it "-odd", "-fit" or "-judge", or the first and one of the others.
std::optional<std::vector<Shape>> ModelSuite(std::string_view name, int count, uint64_t seed) {
  if (!Consume("models", name)) return std::nullopt;
  const Alignment alignment = Consume("-odd", name) ? Alignment::kOdd : Alignment::kOf128;
  std::vector<Weights> weights;
  for (const auto& [suffix, half] : {std::pair{"-fit", Half::kFit}, {"-judge", Half::kJudge}}) {
    if (!name.empty() && name != suffix) continue;
    const std::vector<Weights> of_half = WeightsOf(half, alignment);
    weights.insert(weights.end(), of_half.begin(), of_half.end());
  }
  if (weights.empty()) return std::nullopt;
  return ModelShapes(weights, count, seed);
}

}  // namespace

std::vector<Shape> Dense44() {
  struct Layer {
    int64_t n, k;
  };
  constexpr Layer kLayers[] = {{2112, 7168},  {576, 7168},  {24576, 1536}, {32768, 512},
                               {7168, 16384}, {4096, 7168}, {7168, 2048}};
  std::vector<Shape> shapes;
  for (int64_t m : {1, 16, 64, 128, 512, 4096}) {
    for (const Layer& layer : kLayers) shapes.push_back({m, layer.n, layer.k});
  }
  shapes.push_back({8192, 8192, 8192});
  shapes.push_back({16384, 7168, 4096});
  return shapes;
}

std::vector<Shape> RandomShapes(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Shape> shapes;
  while (static_cast<int>(shapes.size()) < count) {
    const Shape shape{LogUniform(random, 1, 8192), RoundTo16(LogUniform(random, 16, 8192)),
                      RoundTo16(LogUniform(random, 16, 8192))};
    if (shape.flops() <= kMaxRandomFlops) shapes.push_back(shape);
  }
  return shapes;
}

std::vector<Shape> OddShapes() {
  constexpr int64_t kVocabulary = 151674;
  std::vector<Shape> shapes;
  for (int64_t m : {1, 7, 9, 127, 129, 576}) {
    for (int64_t n : {int64_t{1}, int64_t{7}, int64_t{9}, int64_t{127}, int64_t{129}, int64_t{576},
                      int64_t{2112}, kVocabulary}) {
      for (int64_t k : {1, 100, 127, 128, 576, 7168}) shapes.push_back({m, n, k});
    }
  }
  for (const Shape& empty : {Shape{0, 576, 128}, Shape{64, 0, 128}, Shape{64, 576, 0}}) {
    shapes.push_back(empty);
  }
  return shapes;
}

std::vector<Shape> LadderShapes() {
  return {{4096, 4096, 4096}, {2048, 2048, 2048}, {8192, 8192, 8192}};
}

absl::StatusOr<std::vector<Shape>> Suite(std::string_view name, int count, uint64_t seed) {
  if (name == "dense44") return Dense44();
  if (name == "random") return RandomShapes(count, seed);
  if (name == "odd") return OddShapes();
  if (name == "ladder") return LadderShapes();
  if (name == "broad-fit") {
    return BroadShapes(WeightsOf(Half::kFit, Alignment::kOf128), count, seed);
  }
  if (name == "broad-judge") {
    return BroadShapes(WeightsOf(Half::kJudge, Alignment::kOf128), count, seed + kJudgeSeed);
  }
  if (name == "narrow-fit") return NarrowShapes(Half::kFit, count, seed);
  if (name == "narrow-judge") return NarrowShapes(Half::kJudge, count, seed);
  if (auto shapes = ModelSuite(name, count, seed); shapes.has_value()) return *std::move(shapes);
  return absl::InvalidArgumentError(
      absl::StrCat("--suite ", Text(name),
                   ": no such suite; use dense44, ladder, random, odd, broad-fit, broad-judge, "
                   "narrow-fit, narrow-judge or models[-odd][-fit|-judge]"));
}

absl::StatusOr<std::vector<Shape>> ParseShapes(std::string_view text) {
  std::vector<Shape> shapes;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(Text(text), ','))) {
    const std::vector<std::string> sizes = absl::StrSplit(part, 'x');
    int64_t size[3] = {};
    bool good = sizes.size() == 3;
    for (int i = 0; good && i < 3; ++i) {
      good = absl::SimpleAtoi(sizes[i], &size[i]) && size[i] >= 0 && size[i] <= int64_t{1} << 31;
    }
    if (!good) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--shapes: '", part, "' is not MxNxK with sizes from 0 to 2147483648, as 64x4096x7168"));
    }
    shapes.push_back({size[0], size[1], size[2]});
  }
  return shapes;
}

}  // namespace gemmd::kernels::bench
