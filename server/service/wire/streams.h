// StreamRegistry: the long-lived streams (Hold, Queue) that a drain must speak to. Everything else
// it can simply wait for.

#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace gemmd::server {

class DrainableStream {
 public:
  virtual ~DrainableStream() = default;
  // The server has begun to drain and takes new work until `deadline`.
  virtual void DrainNotice(absl::Time deadline) = 0;
  // No new work is taken: end the stream once what it accepted is answered.
  virtual void DrainNow() = 0;
};

// UNAVAILABLE: what DrainNow ends a stream with.
absl::Status Draining();

// Thread-safe. A stream that joins while the server drains is told at once.
class StreamRegistry {
 public:
  // Streams are shared: the registry calls them without holding its lock.
  void Add(std::shared_ptr<DrainableStream> stream) ABSL_LOCKS_EXCLUDED(mutex_);
  void Remove(const std::shared_ptr<DrainableStream>& stream) ABSL_LOCKS_EXCLUDED(mutex_);
  void NotifyAll(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  void DrainAll() ABSL_LOCKS_EXCLUDED(mutex_);
  // False when the deadline came first.
  bool AwaitNone(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Mutex mutex_;
  bool noticed_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<DrainableStream>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
