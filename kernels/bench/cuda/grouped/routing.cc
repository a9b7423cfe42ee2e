#include "kernels/bench/cuda/grouped/routing.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gemmd::kernels::bench {
namespace {

// How often the expert of this rank is wanted, beside others.
double RateOf(Routing routing, size_t rank) {
  constexpr double kEveryToken = 1e9;
  if (routing == Routing::kZipf) return 1.0 / static_cast<double>(rank + 1);
  return routing == Routing::kOneHot && rank == 0 ? kEveryToken : 1.0;
}

}  // namespace

std::string_view Name(Routing routing) {
  constexpr std::string_view kNames[] = {"uniform", "zipf", "balanced", "one hot"};
  return kNames[static_cast<size_t>(routing)];
}

std::vector<int32_t> Route(Routing routing, int64_t tokens, int64_t top_k, int64_t experts,
                           std::mt19937_64& random) {
  std::vector<int32_t> order(static_cast<size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<int32_t> ids;
  std::exponential_distribution<double> wait;
  std::vector<std::pair<double, int32_t>> arrivals(order.size());
  for (int64_t token = 0; token < tokens; ++token) {
    for (size_t e = 0; e < order.size(); ++e) {
      // The first top_k to come are drawn without replacement, each as it is wanted.
      arrivals[e] = {wait(random) / RateOf(routing, e), order[e]};
    }
    std::partial_sort(arrivals.begin(), arrivals.begin() + top_k, arrivals.end());
    for (int64_t i = 0; i < top_k; ++i) {
      ids.push_back(routing == Routing::kBalanced ? order[(token * top_k + i) % experts]
                                                  : arrivals[i].second);
    }
  }
  return ids;
}

}  // namespace gemmd::kernels::bench
