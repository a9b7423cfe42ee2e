// One server of a ReplicaPool: a thread that keeps a prepared session there.

#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/client.h"
#include "client/cpp/internal/connect/replica_pool.h"

namespace gemmd::client {

// What is known of a seat's server. Apart from the seat, since the session's own thread tells it,
// and must not be the one that lets go of the session.
struct ReplicaSigns {
  bool draining = false;  // taken only if there is no other
  bool gone = false;      // never taken again
};

// Its destructor talks to the server: it is the replica's thread that lets go last.
struct ReplicaSeat {
  Client client;    // of its own: behind a load balancer a new connection may be another server
  Session session;  // after what it came from, and before what was made on it
  std::shared_ptr<void> state;

  // Under the pool's mutex, as what `signs` points to.
  int in_flight = 0;
  std::shared_ptr<ReplicaSigns> signs = std::make_shared<ReplicaSigns>();
};

class Replica {
 public:
  // One of the addresses behind `target`, and the options of connections to it.
  Replica(ReplicaPool& pool, std::string target, std::string address, ClientOptions options);
  // When it is idle: a call under way would be the last to let go of its seat. Waits for the
  // thread.
  ~Replica();

  const std::string& target() const { return target_; }
  const std::string& address() const { return address_; }
  bool idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(pool_.mu_);
  // The thread ends soon.
  void Stop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(pool_.mu_) { stopped_ = true; }

  // Null: not prepared, or gone.
  std::shared_ptr<ReplicaSeat> seat() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(pool_.mu_) {
    return seat_ != nullptr && !seat_->signs->gone ? seat_ : nullptr;
  }
  // The last attempt's failure; OK before the first and after one that succeeded.
  const absl::Status& trouble() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(pool_.mu_) { return trouble_; }

 private:
  void Keep();
  absl::StatusOr<std::shared_ptr<ReplicaSeat>> Prepare();
  bool Wanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(pool_.mu_);
  // Destroys what nobody uses any more of the seats that went.
  void Sweep(bool all) ABSL_LOCKS_EXCLUDED(pool_.mu_);

  ReplicaPool& pool_;
  const std::string target_;
  const std::string address_;
  const ClientOptions options_;
  bool stopped_ ABSL_GUARDED_BY(pool_.mu_) = false;
  std::shared_ptr<ReplicaSeat> seat_ ABSL_GUARDED_BY(pool_.mu_);  // shared with calls under way
  absl::Status trouble_ ABSL_GUARDED_BY(pool_.mu_);
  std::vector<std::shared_ptr<ReplicaSeat>> left_ ABSL_GUARDED_BY(pool_.mu_);
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gemmd::client
