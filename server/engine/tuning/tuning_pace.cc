#include "server/engine/tuning/tuning_pace.h"

#include <algorithm>

namespace gemmd::server {

void TuningPace::Took(absl::Time now, double seconds) {
  ended_ = now;
  seconds_ = seconds;
}

absl::Duration TuningPace::ToWait(absl::Time now, int64_t others) {
  if (others != others_) {
    others_ = others;
    used_ = now;
  }
  const absl::Time shared = ended_ + absl::Seconds(seconds_ / share_);
  const double quiet_share = std::max(share_, std::min(kMostQuietShare, kQuietFactor * share_));
  // Quiet from `used_ + kQuiet` on, if nobody comes by then: to be looked at again at that moment.
  const absl::Time quiet = std::max(ended_ + absl::Seconds(seconds_ / quiet_share), used_ + kQuiet);
  return std::min(shared, quiet) - now;
}

}  // namespace gemmd::server
