// Keeps a session alive on a thread of its own: by a Hold stream, or by KeepAlive calls.

#pragma once

#include <grpcpp/completion_queue.h>

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/internal/connect/background.h"
#include "client/cpp/internal/connect/client_core.h"
#include "client/cpp/session.h"

namespace gemmd::client {

// A broken stream is opened again, and a failed call made again, until the daemon says that the
// session is gone or a whole ttl has passed without a word; then on_event hears kEnded, once. The
// destructor ends the thread.
class Keeper {
 public:
  struct Options {
    SessionOptions::Liveness liveness;
    absl::Duration ttl;
    std::function<void(const SessionEvent&)> on_event;
  };
  // `connection` and what else is referred to must outlive it.
  Keeper(const ClientCore& client, Connection& connection, const Handle& session, Options options,
         BackgroundErrors& errors);
  ~Keeper();

 private:
  void Hold();
  // One stream, from its opening to its end.
  absl::Status HoldOnce();
  void KeepAlive();
  // As Await, but looks now and then instead of waiting.
  bool LookFor(grpc::CompletionQueue& queue);
  // False once stopped.
  bool Pause(absl::Duration pause);
  bool Stopped() const;
  // The session is over, or `status` may pass: counts it and says whether to go on.
  bool Survives(const absl::Status& status);
  void Tell(const SessionEvent& event) const;

  const ClientCore& client_;
  Connection& connection_;
  const Handle session_;
  const Options options_;
  BackgroundErrors& errors_;
  absl::Time last_word_;  // of the daemon; the thread's own

  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* stream_ ABSL_GUARDED_BY(mu_) = nullptr;  // to cancel it
  std::thread thread_;                                          // last: it uses all of the above
};

}  // namespace gemmd::client
