// Bystander: somebody else, who asks for health and runs a tiny program all the while, and what a
// daemon takes meanwhile.

#pragma once

#include <grpcpp/channel.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace gemmd::hostile {

// How long each call took.
struct Latencies {
  std::vector<absl::Duration> ok;
  int64_t failed = 0;
  absl::Duration Percentile(double percent) const;  // zero when there is none
};

class Bystander {
 public:
  // `execute` makes one call and tells whether it went well; empty: health alone.
  Bystander(std::shared_ptr<grpc::Channel> channel, std::function<bool()> execute);
  ~Bystander();

  // Of what ended since the last time that it was taken.
  Latencies TakeHealth() { return Take(health_); }
  Latencies TakeExecutes() { return Take(executes_); }

 private:
  Latencies Take(Latencies& from) ABSL_LOCKS_EXCLUDED(mutex_);
  void Note(Latencies& to, bool ok, absl::Duration took) ABSL_LOCKS_EXCLUDED(mutex_);

  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  Latencies health_ ABSL_GUARDED_BY(mutex_);
  Latencies executes_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

// The most resident bytes of a process, looked at every 10 ms while this lives.
class PeakMemory {
 public:
  explicit PeakMemory(pid_t pid);
  ~PeakMemory();
  int64_t bytes() const { return bytes_.load(); }

 private:
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> bytes_{0};
  std::thread thread_;
};

}  // namespace gemmd::hostile
