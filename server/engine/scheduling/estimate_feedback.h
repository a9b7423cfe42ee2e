// EstimateFeedback: corrects a cost model by what programs took.

#pragma once

#include <array>

namespace gemmd::server {

// Ratio of true to estimated time, tracked apart for each power of two of the estimate, because
// kernels' fixed costs make small programs err differently from large ones. Not thread-safe.
class EstimateFeedback {
 public:
  EstimateFeedback() { ratio_.fill(1.0); }
  double Corrected(double estimate) const;
  void Observe(double estimate, double actual);

 private:
  static int Bucket(double seconds);
  std::array<double, 40> ratio_;
};

}  // namespace gemmd::server
