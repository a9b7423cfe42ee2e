// The floor's peer as a child process: `gemmd_bench echo-peer`, talked to over its stdin and
// stdout.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace gemmd::bench {

// Ends the child on destruction; the kernel ends it when this process dies.
class PeerProcess {
 public:
  // Listens on the same kind of address as `daemon_target`: an abstract Unix socket for any Unix
  // socket, else loopback.
  static absl::StatusOr<std::unique_ptr<PeerProcess>> Start(const std::string& daemon_target);
  ~PeerProcess();

  const std::string& target() const { return target_; }
  // SgemmSeconds in the child.
  absl::StatusOr<double> Sgemm(int64_t n, int repeats);

 private:
  PeerProcess() = default;
  absl::StatusOr<std::string> ReadLine();

  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string target_;
};

}  // namespace gemmd::bench
