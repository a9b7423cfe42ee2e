// A queue kept full by a thread of its own: what it completes, and in how much device time.

#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/session.h"

namespace gemmd::bench {

// Submits `ops` again and again while the server's window has room. Must go before its session.
class Pump {
 public:
  // `gather`: as QueueOptions.
  static absl::StatusOr<std::unique_ptr<Pump>> Start(client::Session& session, client::OpList ops,
                                                     bool gather = true);
  ~Pump();  // stops, without waiting for what is in flight

  struct Count {
    int64_t batches = 0;  // completed
    double device_seconds = 0;
  };
  Count count() const;
  // Why it stopped by itself, if it did.
  absl::Status status() const;

 private:
  explicit Pump(client::OpList ops) : ops_(std::move(ops)) {}
  void Run();

  const client::OpList ops_;
  std::atomic<bool> stop_ = false;
  mutable absl::Mutex mu_;
  Count count_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  client::Queue queue_;  // its callbacks use what is above
  std::thread thread_;
};

// Batches of `ops` that complete a second, in `duration` after `warm_up`. An error when none does.
absl::StatusOr<double> PumpedRate(client::Session& session, const client::OpList& ops, bool gather,
                                  absl::Duration warm_up, absl::Duration duration);

}  // namespace gemmd::bench
