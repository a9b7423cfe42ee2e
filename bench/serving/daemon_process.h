// The daemon as a process of this host: who it is, and what it uses.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd::bench {

struct ProcessUse {
  double cpu_seconds = 0;  // user and system, of all threads it ever had; in steps of 10 ms
  int64_t resident_bytes = 0;
  int64_t descriptors = 0;
  int64_t threads = 0;
};

// From /proc. NOT_FOUND when it is not there, PERMISSION_DENIED when it is another user's.
absl::StatusOr<ProcessUse> UseOf(pid_t pid);

// The process that listens on a Unix socket: "unix:/path" or "unix-abstract:name", as
// ServerInfo.share_socket has it. UNAVAILABLE when nobody of this host does.
absl::StatusOr<pid_t> ListenerOf(const std::string& address);

}  // namespace gemmd::bench
