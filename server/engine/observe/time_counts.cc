#include "server/engine/observe/time_counts.h"

#include <algorithm>

#include "prometheus/histogram.h"

namespace gemmd::server {

const std::vector<double>& TimeBuckets() {
  static const std::vector<double>& buckets = *[] {
    auto* bounds = new std::vector<double>;
    for (double bound = 5e-6; bounds->size() < kTimeBuckets; bound *= 2) bounds->push_back(bound);
    return bounds;
  }();
  return buckets;
}

void TimeCounts::Add(double seconds) {
  const std::vector<double>& bounds = TimeBuckets();
  ++count_;
  sum_ += seconds;
  // Times of one kernel are mostly alike.
  const bool same = (bucket_ == 0 || bounds[bucket_ - 1] < seconds) &&
                    (bucket_ == kTimeBuckets || seconds <= bounds[bucket_]);
  if (!same) {
    bucket_ =
        static_cast<int>(std::lower_bound(bounds.begin(), bounds.end(), seconds) - bounds.begin());
  }
  ++counts_[bucket_];
}

void TimeCounts::AddTo(prometheus::Histogram& histogram) const {
  if (count_ == 0) return;
  if (count_ == 1) return histogram.Observe(sum_);
  histogram.ObserveMultiple({counts_.begin(), counts_.end()}, sum_);
}

}  // namespace gemmd::server
