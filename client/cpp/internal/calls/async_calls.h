// AsyncCalls: the thread that sees the ends of calls which nobody waits for. gRPC's callback API
// has threads for that too, which poll every connection of the process for as long as it lives:
// each answer to a blocking call wakes one of them first, and that one the caller, a fifth of a
// small Execute on an H200. This one polls only while such a call is under way.

#pragma once

#include <grpcpp/completion_queue.h>

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace gemmd::client {

// What a completion queue's operation is begun with. Done runs on the library's thread.
class AsyncStep {
 public:
  virtual void Done(bool ok) = 0;

 protected:
  ~AsyncStep() = default;
};

// Thread-safe.
class AsyncCalls {
 public:
  // The process'. Its thread starts with the first operation and is never joined, so that a
  // callback may destroy whatever it belongs to.
  static AsyncCalls& Get();

  grpc::CompletionQueue* queue() { return &queue_; }
  // Before each operation, whose tag is an AsyncStep. What the caller did before it is seen by
  // Done.
  void Begin() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  AsyncCalls();
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  grpc::CompletionQueue queue_;
  absl::Mutex mu_;
  int64_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace gemmd::client
