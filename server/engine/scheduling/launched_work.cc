#include "server/engine/scheduling/launched_work.h"

#include <algorithm>

namespace gemmd::server {

void LaunchedWork::Launched(double estimate, absl::Time now) {
  if (estimates_.empty()) running_since_ = now;
  estimates_.push_back(estimate);
  seconds_ += estimate;
}

void LaunchedWork::Ended(absl::Time now) {
  seconds_ -= estimates_.front();
  estimates_.pop_front();
  if (estimates_.empty()) seconds_ = 0;  // and not what rounding left
  running_since_ = now;
}

double LaunchedWork::SecondsLeft(absl::Time now) const {
  if (estimates_.empty()) return 0;
  const double ran = std::max(0.0, absl::ToDoubleSeconds(now - running_since_));
  return seconds_ - std::min(ran, estimates_.front());
}

absl::Time LaunchedWork::EndOfFirst() const {
  return running_since_ + absl::Seconds(estimates_.front());
}

}  // namespace gemmd::server
