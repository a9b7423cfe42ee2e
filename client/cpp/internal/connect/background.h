// What a session does without being waited for, and what came of it: the count of failures, and the
// reaper that deletes dropped buffers and plans.

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/types.h"

namespace gemmd::client {

class BackgroundErrors {
 public:
  explicit BackgroundErrors(std::shared_ptr<ClientCore> client) : client_(std::move(client)) {}

  void Add(absl::string_view what, const absl::Status& status, int64_t count = 1) {
    count_.fetch_add(count, std::memory_order_relaxed);
    client_->ReportBackground(what, status);
  }
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<ClientCore> client_;  // shared with every session
  std::atomic<int64_t> count_ = 0;
};

// Deletes in batches: one call is under way at a time, and what is dropped meanwhile goes with the
// next. Thread-safe. The calls are a thread's of its own, from the first drop on, and not gRPC's
// callbacks: their queue's threads poll every connection of the process, and it aborts when it ends
// inside one of them (KeepCallbackQueue).
class Reaper {
 public:
  Reaper(std::shared_ptr<ClientCore> client, Connection& connection, const Handle& session,
         std::shared_ptr<BackgroundErrors> errors);
  ~Reaper() { Stop(); }

  void DropBuffer(const Handle& id);
  void DropPlan(const Handle& id);
  bool Idle() const;
  // Waits until all that was dropped is deleted or given up.
  void Flush();
  // The session is over and the rest went with it: forgets what waits, ignores what comes, and
  // waits for the call under way.
  void Stop();

 private:
  struct Job;
  struct Single {  // a buffer that is deleted by itself, because a batch with it failed
    Handle id;
    bool maybe_gone;  // the batch may have been done before its answer was lost: NOT_FOUND is fine
    int tries;
  };

  void Drop(std::vector<Handle>& list, const Handle& id);
  bool Waiting() const ABSL_SHARED_LOCKS_REQUIRED(mu_);  // something is to be deleted
  bool Done() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !busy_ && !Waiting(); }
  void Work();
  void Take(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // what waits
  absl::Status Send(const Job& job);
  void Failed(const Job& job, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<ClientCore> client_;  // shared with every session; owns connection_
  Connection& connection_;
  const Handle session_;
  const std::shared_ptr<BackgroundErrors> errors_;  // shared with the session

  mutable absl::Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Handle> buffers_ ABSL_GUARDED_BY(mu_);
  std::vector<Handle> plans_ ABSL_GUARDED_BY(mu_);
  std::deque<Single> singles_ ABSL_GUARDED_BY(mu_);
  std::thread thread_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd::client
