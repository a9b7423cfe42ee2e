#include "kernels/bench/cuda/grouped/moe_cases.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"

namespace gemmd::kernels::bench {
namespace {

std::vector<int64_t> Drawn(int64_t groups, int64_t rows, bool zipf, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> weights;
  for (int64_t g = 0; g < groups; ++g) {
    weights.push_back(zipf ? 1.0 / static_cast<double>(g + 1) : 1.0);
  }
  std::shuffle(weights.begin(), weights.end(), random);
  std::discrete_distribution<size_t> draw(weights.begin(), weights.end());
  std::vector<int64_t> counts(static_cast<size_t>(groups));
  for (int64_t i = 0; i < rows; ++i) ++counts[draw(random)];
  return counts;
}

}  // namespace

std::vector<GateCase> GateCases(uint64_t seed) {
  std::vector<GateCase> cases;
  for (const int64_t rows : {8, 16, 32, 64}) {
    cases.push_back({absl::StrCat("32 x ", rows, " rows, 7168 -> 2x2048"),
                     std::vector<int64_t>(32, rows), 4096, 7168, 1.10});
  }
  cases.push_back({"128 experts, 512 rows drawn, 2048 -> 2x768", Drawn(128, 512, false, seed), 1536,
                   2048, 1.10});
  cases.push_back({"64 x 96 rows, 7168 -> 2x2048", std::vector<int64_t>(64, 96), 4096, 7168, 0});
  cases.push_back(
      {"8 x 8192 rows, 7168 -> 2x2048", std::vector<int64_t>(8, 8192), 4096, 7168, 1.03});
  cases.push_back({"256 experts, 65536 rows drawn, 7168 -> 2x2048", Drawn(256, 65536, false, seed),
                   4096, 7168, 1.03});
  cases.push_back({"256 experts, 65536 rows by Zipf, 7168 -> 2x2048", Drawn(256, 65536, true, seed),
                   4096, 7168, 1.03});
  return cases;
}

std::vector<LayerCase> LayerCases() {
  return {
      {.tokens = 32,
       .experts = 32,
       .hidden = 7168,
       .inner = 2048,
       .routing = Routing::kBalanced,
       .wanted_ratio = 1.12},
      {.tokens = 128, .experts = 32, .hidden = 7168, .inner = 2048, .wanted_ratio = 1.12},
      {.tokens = 64, .experts = 128, .hidden = 2048, .inner = 768, .wanted_ratio = 1.25},
      {.tokens = 64,
       .experts = 128,
       .hidden = 2048,
       .inner = 768,
       .routing = Routing::kZipf,
       .wanted_ratio = 1.25},
      {.tokens = 8192, .experts = 256, .hidden = 7168, .inner = 2048, .wanted_us = 4400},
      {.tokens = 8192,
       .experts = 256,
       .hidden = 7168,
       .inner = 2048,
       .routing = Routing::kZipf,
       .wanted_us = 4400},
  };
}

}  // namespace gemmd::kernels::bench
