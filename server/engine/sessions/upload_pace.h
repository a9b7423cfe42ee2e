// UploadPace: slows a tenant's uploads to a rate. A chunk is taken whenever it comes; its stream
// then waits until the chunk would have come at the rate, and TCP slows the sender.

#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace gemmd::server {

// Of one tenant, all streams together. Thread-safe.
class UploadPace {
 public:
  // What an idle tenant may send at once, in time at its rate.
  static constexpr absl::Duration kBurst = absl::Milliseconds(100);

  // Counts `bytes` that came at `now`; how long to wait before the stream's next read. Zero for a
  // rate of 0, which is none.
  absl::Duration Take(int64_t bytes, int64_t bytes_per_second, absl::Time now);

 private:
  absl::Mutex mutex_;
  // When all that was taken would have come at the rate.
  absl::Time paid_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time last_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace gemmd::server
