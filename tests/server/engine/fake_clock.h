// FakeClock: time that moves only when a test says so.

#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/clock.h"

namespace gemmd::server {

// Thread-safe. Starts at a fixed time, so that a test's expected times can be written down.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'800'000'000)) : now_(start) {}

  absl::Time Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }

  // Nobody sets it: Advance() is time that passes.
  absl::Duration Ahead() const override { return absl::ZeroDuration(); }

  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
