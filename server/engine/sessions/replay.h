// ReplayCache: answers a session gave under a client's op_id, so that a retry gets the first answer
// instead of running again. Remembers only what ran and succeeded; what was refused or failed may
// simply be tried again.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "kernels/host_memory.h"
#include "server/engine/scheduling/job.h"

namespace gemmd::server {

// How a program ended. Shared between the reply that is being written and the replay cache; hence
// shared_ptr.
struct Outcome {
  std::shared_ptr<const kernels::Program>
      program;  // null when it was refused before it was compiled
  // By op, where the caller's ops have other names than the program's: a Write from shared memory
  // is a Copy there. Shared with a plan; null when they agree.
  std::shared_ptr<const std::vector<std::string_view>> op_names;
  std::string device;                   // of a split program all of them
  std::vector<std::string> op_devices;  // by op, of a split program; empty for others
  JobResult result;
  std::vector<std::unique_ptr<kernels::HostMemory>> outputs;  // what each Read op brought
  // Of host memory, for `outputs`; shared with whoever makes a message of them. Null without any.
  std::shared_ptr<const Charge> charge;
};

// A client's name for one run, and what is to run: a name that comes back with another program is
// a mistake, not a retry.
struct OpId {
  std::string id;               // empty: the run is not remembered
  uint64_t program_digest = 0;  // equal for equal requests
};

using OutcomeDone = absl::AnyInvocable<void(std::shared_ptr<const Outcome>, bool replayed) &&>;

// Thread-safe.
class ReplayCache {
 public:
  // Bytes of outputs kept a session; older answers give way.
  static constexpr int64_t kMaxBytes = 16 << 20;

  // True when the caller is to run the program and then call Finish. Otherwise `done` has been or
  // will be called with the first one's outcome, or refused when the first one ran another program.
  bool Begin(const OpId& op_id, OutcomeDone& done) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers whoever waits for the same id. The tenant's limits bound what is remembered from here
  // on: without room for an answer, even when older ones have given way, it is not.
  void Finish(const OpId& op_id, std::shared_ptr<const Outcome> outcome, Tenant& tenant)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    uint64_t program_digest = 0;
    std::shared_ptr<const Outcome> outcome;  // null while it runs
    std::vector<OutcomeDone> waiting;
    Charge charge;  // of what is remembered
  };
  static int64_t Bytes(const Outcome& outcome);
  // Finds room for an entry of `bytes`; the oldest give way.
  std::optional<Charge> MakeRoom(int64_t bytes, Tenant& tenant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> finished_ ABSL_GUARDED_BY(mutex_);  // oldest first
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd::server
