#include "bench/load/percentiles.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gemmd::bench {

void Latencies::Merge(const Latencies& other) {
  samples_.insert(samples_.end(), other.samples_.begin(), other.samples_.end());
  sorted_ = false;
}

double Latencies::Percentile(double percent) const {
  if (samples_.empty()) return 0;
  if (!sorted_) {
    std::sort(samples_.begin(), samples_.end());
    sorted_ = true;
  }
  // The epsilon keeps 99.9 % of 1000 at rank 999, not 1000: 99.9/100*1000 is a hair above 999.
  const double rank = std::ceil(percent / 100 * static_cast<double>(samples_.size()) - 1e-9);
  const auto index = static_cast<int64_t>(std::max(1.0, rank)) - 1;
  return samples_[std::min<int64_t>(index, count() - 1)];
}

double Latencies::mean() const {
  if (samples_.empty()) return 0;
  return std::accumulate(samples_.begin(), samples_.end(), 0.0) /
         static_cast<double>(samples_.size());
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double Spread(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double median = Median(values);
  return median == 0 ? 0 : (*high - *low) / median;
}

}  // namespace gemmd::bench
