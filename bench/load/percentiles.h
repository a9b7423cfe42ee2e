// Latencies of a run, kept whole and sorted: percentiles are exact, and 8 bytes a sample is cheap
// for what one run holds.

#pragma once

#include <cstdint>
#include <vector>

namespace gemmd::bench {

class Latencies {
 public:
  void Add(double seconds) {
    samples_.push_back(seconds);
    sorted_ = false;
  }
  void Merge(const Latencies& other);

  int64_t count() const { return static_cast<int64_t>(samples_.size()); }
  // The smallest sample that at least `percent` of all do not pass (nearest rank). 0 without
  // samples.
  double Percentile(double percent) const;
  double mean() const;
  double max() const { return Percentile(100); }

 private:
  mutable std::vector<double> samples_;  // sorted on first use
  mutable bool sorted_ = true;
};

double Median(std::vector<double> values);  // 0 without values; the mean of the middle two

// How far the rounds of a measurement lie apart: (largest - smallest) / median. 0 below two values.
double Spread(const std::vector<double>& values);

}  // namespace gemmd::bench
