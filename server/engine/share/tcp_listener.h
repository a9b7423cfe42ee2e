// The listening end of a TCP address, as gRPC would bind it: every address of a name, IPv4 and IPv6
// for a wildcard.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/share/share.h"

namespace gemmd::server {

// Move-only. Closes its sockets when destroyed.
class TcpListener {
 public:
  // `address` is "127.0.0.1:8470", "[::1]:0" or "localhost:8470". UNAVAILABLE when none of its
  // addresses can be bound.
  static absl::StatusOr<TcpListener> Bind(const std::string& address);

  std::vector<int> fds() const;
  const std::string& address() const { return address_; }  // the port filled in

 private:
  TcpListener() = default;

  std::vector<UniqueFd> sockets_;
  std::string address_;
};

}  // namespace gemmd::server
