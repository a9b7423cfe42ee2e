// TimeCounts: durations gathered for a histogram and added to it at once. A histogram takes its
// lock and searches its buckets for each value; a program has hundreds of ops of one kernel.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace prometheus {
class Histogram;
}  // namespace prometheus

namespace gemmd::server {

inline constexpr int kTimeBuckets = 21;
// The upper bounds of every histogram of seconds but those of transfers: 5 us to 5.2 s.
const std::vector<double>& TimeBuckets();

class TimeCounts {
 public:
  void Add(double seconds);
  // To a histogram of TimeBuckets(), as if each had been observed by itself.
  void AddTo(prometheus::Histogram& histogram) const;

 private:
  int64_t count_ = 0;
  double sum_ = 0;
  int bucket_ = 0;  // of the last one
  std::array<int32_t, kTimeBuckets + 1> counts_ = {};
};

}  // namespace gemmd::server
