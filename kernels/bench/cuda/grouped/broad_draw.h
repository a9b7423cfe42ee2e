// What broad suites draw from: the experts of public models, with any number of tokens, any routing
// and every front.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "kernels/bench/cuda/grouped/routing.h"
#include "kernels/bench/models.h"
#include "kernels/op.h"

namespace gemmd::kernels::bench {

// A published config.
struct Experts {
  Half half;
  int64_t hidden, inner, experts, top_k;
};
inline constexpr Experts kModels[] = {
    {Half::kFit, 2048, 768, 128, 8},     // Qwen3-30B-A3B
    {Half::kFit, 4096, 14336, 8, 2},     // Mixtral-8x7B
    {Half::kFit, 4096, 1408, 128, 8},    // GLM-4.5-Air
    {Half::kFit, 2880, 2880, 32, 4},     // gpt-oss-20b
    {Half::kFit, 7168, 2048, 384, 8},    // Kimi-K2
    {Half::kJudge, 4096, 1536, 128, 8},  // Qwen3-235B-A22B
    {Half::kJudge, 2048, 1408, 64, 6},   // DeepSeek-V2-Lite
    {Half::kJudge, 5120, 8192, 16, 1},   // Llama-4-Scout
    {Half::kJudge, 2688, 1856, 128, 6},  // Nemotron-3-Nano-30B-A3B
    {Half::kJudge, 5120, 1536, 160, 8},  // GLM-4.5
};
constexpr bool HalvesAreApart() {
  for (const Experts& fit : kModels) {
    for (const Experts& judge : kModels) {
      if (fit.half != judge.half && fit.hidden == judge.hidden && fit.inner == judge.inner) {
        return false;
      }
    }
  }
  return true;
}
static_assert(HalvesAreApart(), "what is judged has weights that nothing was changed for");
inline constexpr int64_t kTokenRanges[][2] = {{1, 8}, {9, 64}, {65, 512}, {513, 8192}};
inline constexpr Routing kRoutings[] = {Routing::kUniform, Routing::kZipf, Routing::kOneHot};
inline constexpr GroupLayout kLayouts[] = {GroupLayout::kOffsets, GroupLayout::kCounts,
                                           GroupLayout::kRowIds, GroupLayout::kEnds};
inline constexpr int64_t kFewestLocal = 8;  // experts of one GPU among several

class Draw {
 public:
  Draw(Half half, uint64_t seed) : random_(seed) {
    std::copy_if(std::begin(kModels), std::end(kModels), std::back_inserter(models_),
                 [&](const Experts& model) { return model.half == half; });
  }
  std::mt19937_64& random() { return random_; }
  const Experts& Model() { return models_[Below(models_.size())]; }
  Routing AnyRouting() { return kRoutings[Below(std::size(kRoutings))]; }
  GroupLayout AnyLayout() { return kLayouts[Below(std::size(kLayouts))]; }
  bool Coin() { return Below(2) == 0; }
  // Small numbers as often as large ones.
  int64_t Tokens(int turn) {
    const auto& [least, most] = kTokenRanges[turn % std::size(kTokenRanges)];
    std::uniform_real_distribution<double> log(std::log(static_cast<double>(least)),
                                               std::log(static_cast<double>(most) + 1));
    return std::clamp(static_cast<int64_t>(std::exp(log(random_))), least, most);
  }
  int64_t Ranks(int64_t experts) {
    const int64_t ranks = int64_t{1} << Below(4);
    return experts / ranks >= kFewestLocal ? ranks : 1;
  }

 private:
  size_t Below(size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random_);
  }
  std::mt19937_64 random_;
  std::vector<Experts> models_;
};

// Rows of the first rank's experts.
inline std::vector<int64_t> LocalRows(const std::vector<int32_t>& ids, int64_t local) {
  std::vector<int64_t> rows(static_cast<size_t>(local));
  for (const int32_t id : ids) {
    if (id < local) ++rows[static_cast<size_t>(id)];
  }
  return rows;
}

}  // namespace gemmd::kernels::bench
