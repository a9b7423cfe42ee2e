// Connection: one that is watched, and the table by which watch.cc finds it.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/guard/connections.h"
#include "server/guard/frame_reader.h"
#include "server/guard/frame_walk.h"
#include "server/guard/token_bucket.h"

namespace gemmd::guard {

// Counted: the table holds it until its descriptor is closed, TLS as long as it lives.
class Connection {
 public:
  Connection(const NewConnection& connection, int max_streams,
             std::shared_ptr<Connections::State> state);

  // Of the reading thread: takes bytes in the order in which gRPC would; false: cut.
  bool Take(std::string_view bytes);
  // Of a writing thread: what gRPC has sent, in order. It matters until a call was admitted.
  bool counts_answers() const { return !admitted_.load(std::memory_order_relaxed); }
  void Sent(std::string_view bytes);
  bool cut() const { return cut_.load(std::memory_order_relaxed); }
  bool tls() const { return tls_; }

  // Its descriptor is about to be closed.
  void Closed();

  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  friend struct Connections::State;

  Breach Read(std::string_view bytes, Seen& seen);
  Breach Judge(const Seen& seen);

  const std::string peer_;
  const std::string name_;
  const bool tls_;
  const bool health_only_;
  const std::shared_ptr<Connections::State> state_;
  std::atomic<int> references_{1};
  std::atomic<bool> admitted_{false};
  std::atomic<bool> cut_{false};
  std::atomic<int64_t> unfinished_bytes_{0};
  int fd_;  // -1 once closed; by the state's mutex
  // Of the reading thread; of a writing one as well while it counts, and so long under the mutex.
  FrameReader reader_;
  bool counting_ = true;
  absl::Mutex counting_mutex_;
  FrameWalk sent_ ABSL_GUARDED_BY(counting_mutex_){0};
  // Of the reading thread.
  TokenBucket control_frames_;
  TokenBucket calls_;  // until one was admitted
  double unadmitted_bytes_ = 0;
};

// The watched connection of a descriptor, or null.
Connection* Watched(int fd);
// Null, or whose TLS begins in this thread.
Connection* BeingHandedOver();
// Before a watched descriptor is closed.
void Forget(int fd);

// Defined beside the functions that stand in front of others', so that whoever links the one has
// the other.
void StandInFront();

}  // namespace gemmd::guard
