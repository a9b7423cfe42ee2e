#include "server/engine/scheduling/estimate_feedback.h"

#include <algorithm>
#include <cmath>

namespace gemmd::server {
namespace {

// How much one completion moves the correction.
constexpr double kGain = 0.1;

}  // namespace

int EstimateFeedback::Bucket(double seconds) {
  // 2^-30 s is about 1 ns: bucket 0.
  const int bucket = std::ilogb(std::max(seconds, 1e-9)) + 30;
  return std::clamp(bucket, 0, 39);
}

double EstimateFeedback::Corrected(double estimate) const {
  return estimate * ratio_[Bucket(estimate)];
}

void EstimateFeedback::Observe(double estimate, double actual) {
  if (!(estimate > 0) || !(actual >= 0)) return;
  double& ratio = ratio_[Bucket(estimate)];
  ratio += kGain * (std::clamp(actual / estimate, 0.01, 100.0) - ratio);
}

}  // namespace gemmd::server
