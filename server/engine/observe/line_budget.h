// LineBudget: so many lines of a log a second, so that whoever causes them cannot fill it.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace gemmd::server {

// Thread-safe.
class LineBudget {
 public:
  explicit LineBudget(int per_second) : per_second_(per_second) {}

  // Nothing when this line is to be left out, else how many were since the last one.
  std::optional<int64_t> Take(absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (absl::AbsDuration(now - second_) >= absl::Seconds(1)) {  // the clock may be set back
      second_ = now;
      lines_ = 0;
    }
    if (lines_ >= per_second_) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  const int per_second_;
  absl::Mutex mutex_;
  absl::Time second_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // when this one began
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;                             // in it
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;                      // since the last line
};

}  // namespace gemmd::server
