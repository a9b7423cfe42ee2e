// What is under Replicas<State>, without the State: which replicas there are, which of them a call
// gets, and when it moves on.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "client/cpp/session.h"

namespace gemmd::client {

struct ReplicaOptions {
  ClientOptions client = {};    // of each connection
  SessionOptions session = {};  // of each session; without Hold a drain is noticed when it refuses
  // How long a call is tried again after it first found no replica or had to leave one.
  absl::Duration patience = absl::Seconds(30);
  // In how many replicas a call may lose its connection before it fails: work that brings servers
  // down must not go round them all.
  int max_losses = 3;
  // Between two look-ups of the targets' names.
  absl::Duration lookup_period = absl::Seconds(5);
  // The addresses behind a target. Empty: DNS, for what is a name; the others are what they are.
  std::function<absl::StatusOr<std::vector<std::string>>(const std::string& target)> lookup = {};
};

// Whether a failed call may do better on another replica, and need not fear to have been done:
// the server leaves (DRAINING, DEVICE_FENCED), is not there, was lost under the call, or has
// restarted and knows the session no more (SESSION_GONE). What a lost server did with the call was
// done to memory that is gone with it.
bool MeansElsewhere(const absl::Status& status);

class Replica;
struct ReplicaSeat;

// Thread-safe.
class ReplicaPool {
 public:
  using Prepare = std::function<absl::StatusOr<std::shared_ptr<void>>(Session&)>;

  // Shared with nobody: what holds it may be inherited by a fork, which does not end it.
  static absl::StatusOr<std::shared_ptr<ReplicaPool>> Open(std::vector<std::string> targets,
                                                           Prepare prepare,
                                                           const ReplicaOptions& options);
  ReplicaPool(std::vector<std::string> targets, Prepare prepare, const ReplicaOptions& options);
  ~ReplicaPool();

  // One call's way through the replicas.
  class Turn {
   public:
    Turn(ReplicaPool& pool, absl::Time deadline);
    ~Turn();
    Turn(const Turn&) = delete;

    // A replica to work on, the least busy one; waits for one if none is up. UNAVAILABLE.
    absl::Status Find();
    Session& session() const;
    void* state() const;
    // Gives the replica back; true if the work is to be done again.
    bool MovesOn(const absl::Status& status);

   private:
    ReplicaPool& pool_;
    const absl::Time deadline_;
    absl::Time give_up_ = absl::InfiniteFuture();  // patience after the first trouble
    std::shared_ptr<ReplicaSeat> seat_;            // shared with the replica
    absl::Status last_;
    int losses_ = 0;
  };

  int serving() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class Replica;

  absl::Status AwaitFirst() ABSL_LOCKS_EXCLUDED(mu_);
  // Keeps the replicas what the targets' names say.
  void Follow();
  void LookUp() ABSL_LOCKS_EXCLUDED(mu_);
  // Destroys what has left and is idle.
  void Sweep() ABSL_LOCKS_EXCLUDED(mu_);

  std::shared_ptr<ReplicaSeat> Choose() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string WhyNone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<std::string> targets_;
  const Prepare prepare_;
  const ReplicaOptions options_;

  mutable absl::Mutex mu_;
  absl::CondVar changed_;  // a seat came or went, or it stops
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  size_t turn_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Replica>> replicas_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<Replica>> leaving_ ABSL_GUARDED_BY(mu_);  // their last calls go on
  absl::Status lookup_ ABSL_GUARDED_BY(mu_);                            // the last one's trouble
  std::thread follower_;  // last: it uses all of the above
};

}  // namespace gemmd::client
