// LastResort: ends the process at a set time, however it hangs. A drain that is over leaves work
// behind that may not end by itself: a program on a GPU, a call that nobody finishes.

#pragma once

#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/observe/log.h"
#include "server/exit_status.h"

namespace gemmd::server {

// Destruction calls it off. Thread-safe. The log outlives it.
class LastResort {
 public:
  explicit LastResort(Log& log) : log_(log) {}
  ~LastResort();
  LastResort(const LastResort&) = delete;

  // From `when` on the process ends with `status`, without running anything more. A later call
  // replaces an earlier one.
  void Set(absl::Time when, ExitStatus status) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  Log& log_;
  absl::Mutex mutex_;
  absl::Time when_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  ExitStatus status_ ABSL_GUARDED_BY(mutex_) = kCutShort;
  bool off_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // from the first Set on
};

}  // namespace gemmd::server
