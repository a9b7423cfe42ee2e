#include "kernels/bench/choice_regret.h"

#include <algorithm>

#include "kernels/bench/statistics.h"

namespace gemmd::kernels::bench {

double ChoiceRegret(double chosen, const std::vector<double>& all) {
  double best = chosen;
  for (const double time : all) {
    if (time > 0) best = std::min(best, time);
  }
  return best > 0 ? chosen / best - 1 : 0;
}

RegretSummary SummaryOf(const std::vector<double>& regrets) {
  return {Mean(regrets), *std::max_element(regrets.begin(), regrets.end())};
}

}  // namespace gemmd::kernels::bench
