// Supervisor: which of several child processes is to be started when, and with what status it all
// ends. Values in, decisions out; device_processes.h acts on them.
//
// A child that ends although nobody stopped the whole is started again: a second later, and each
// time twice as late, up to 30 s, until it has served for a minute. One that ends before it has
// ever served ends the whole: its config is wrong, or its device is not there.

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace gemmd::server {

// How a process ended.
struct ChildEnd {
  int status = 0;  // that it exited with
  int signal = 0;  // that ended it; 0 when it exited
};

// Not thread-safe. Children are numbered from 0.
class Supervisor {
 public:
  // All are due at once.
  explicit Supervisor(size_t children);

  // The children to start now. They count as running from here on, until Ended.
  std::vector<size_t> TakeDue(absl::Time now);
  void Ready(size_t child, absl::Time now);
  // Returns how long after `now` it is due again; infinite when it never is.
  absl::Duration Ended(size_t child, const ChildEnd& end, absl::Time now);
  // Nothing is started from here on; those that run are to end.
  void Stop() { stopping_ = true; }
  // The same, and the whole ends with this status.
  void Fail(int status);

  bool stopping() const { return stopping_; }
  bool all_serve() const;
  // Set once nothing runs and nothing will.
  std::optional<int> exit_status() const;

 private:
  enum class State { kWaiting, kStarting, kServing };
  struct Child {
    State state = State::kWaiting;
    bool has_served = false;
    absl::Time due = absl::InfinitePast();        // while it waits
    absl::Time since = absl::InfiniteFuture();    // while it serves
    absl::Duration delay = absl::ZeroDuration();  // the last one
  };

  std::vector<Child> children_;
  bool stopping_ = false;
  int worst_ = 0;  // of those that ended when they were to
  std::optional<int> failed_;
};

}  // namespace gemmd::server
