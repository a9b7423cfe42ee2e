// ReplayCache: answers a session gave under a client's op_id, so that a retry gets the first answer
// instead of running again. Remembers only what ran and succeeded; what was refused or failed may
// simply be tried again.

#ifndef GEMMD_SERVER_ENGINE_REPLAY_H_
#define GEMMD_SERVER_ENGINE_REPLAY_H_

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/job.h"

namespace gemmd::server {

// How a program ended. Shared between the reply that is being written and the replay cache; hence
// shared_ptr.
struct Outcome {
  std::shared_ptr<const kernels::Program>
      program;  // null when it was refused before it was compiled
  std::string device;
  JobResult result;
  std::vector<std::string> outputs;  // one per Read op
};
using OutcomeDone = absl::AnyInvocable<void(std::shared_ptr<const Outcome>, bool replayed) &&>;

// Thread-safe.
class ReplayCache {
 public:
  // Bytes of outputs kept a session; older answers give way.
  static constexpr int64_t kMaxBytes = 16 << 20;

  // True when the caller is to run the program and then call Finish. Otherwise `done` has been or
  // will be called with the first one's outcome.
  bool Begin(const std::string& op_id, OutcomeDone& done) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers whoever waits for the same id. `max_entries` bounds what is remembered from here on.
  void Finish(const std::string& op_id, std::shared_ptr<const Outcome> outcome, int max_entries)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::shared_ptr<const Outcome> outcome;  // null while it runs
    std::vector<OutcomeDone> waiting;
  };
  static int64_t Bytes(const Outcome& outcome);

  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> finished_ ABSL_GUARDED_BY(mutex_);  // oldest first
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_REPLAY_H_
