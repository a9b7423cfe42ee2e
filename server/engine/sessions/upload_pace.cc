#include "server/engine/sessions/upload_pace.h"

#include <algorithm>

namespace gemmd::server {

absl::Duration UploadPace::Take(int64_t bytes, int64_t bytes_per_second, absl::Time now) {
  if (bytes_per_second <= 0) return absl::ZeroDuration();
  const absl::Duration cost =
      absl::Seconds(static_cast<double>(bytes) / static_cast<double>(bytes_per_second));
  absl::MutexLock lock(&mutex_);
  // Set back, the clock would make streams wait by as much.
  if (now < last_) paid_until_ -= last_ - now;
  last_ = now;
  paid_until_ = std::max(paid_until_, now - kBurst) + cost;
  return std::max(paid_until_ - now, absl::ZeroDuration());
}

}  // namespace gemmd::server
