// Whether the daemon behind a share socket lives. Plain C++, as all of this folder.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "client/armed/outcome.h"

namespace gemmd::armed {

// Of one daemon process: one that has been started again at the same address does not count.
// Move-only; for one thread.
class DaemonWatch {
 public:
  DaemonWatch() = default;
  ~DaemonWatch();
  DaemonWatch(const DaemonWatch&) = delete;
  DaemonWatch& operator=(const DaemonWatch&) = delete;

  // `address`: "unix:/path" or "unix-abstract:name". UNAVAILABLE when nobody listens there.
  Outcome Start(const std::string& address);

  // Waits for the daemon's end, for `most` at most or until `wake_fd` is readable; true while the
  // daemon lives. By a pidfd where the daemon's process can be seen from here; else, from another
  // PID namespace, by its socket.
  bool Lives(std::chrono::milliseconds most, int wake_fd);

 private:
  bool Answers() const;

  std::string address_;
  int process_ = -1;          // pidfd
  uint64_t socket_file_ = 0;  // inode; 0 for an abstract address
};

}  // namespace gemmd::armed
