// What a choice of kernels costs: how much longer the chosen one takes than the best of all.

#pragma once

#include <vector>

namespace gemmd::kernels::bench {

// 0.03 where `chosen` takes 3 % longer than the least of `all`; 0 where none takes less. Times that
// are not above 0 do not count.
double ChoiceRegret(double chosen, const std::vector<double>& all);

// Of regrets, of which there is at least one.
struct RegretSummary {
  double mean = 0;
  double most = 0;
};
RegretSummary SummaryOf(const std::vector<double>& regrets);

}  // namespace gemmd::kernels::bench
