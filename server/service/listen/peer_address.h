// Who is at the other end of a TCP connection: for gRPC, and for whom its connections count.

#pragma once

#include <sys/socket.h>

#include <string>

namespace gemmd::server {

struct PeerAddress {
  std::string name;  // as gRPC writes it: "ipv4:10.0.0.7:41234", "ipv6:%5Bfd00::7%5D:41234"
  std::string host;  // "10.0.0.7"; of IPv6 the network, the first 64 bits: "fd00::"
};

// IPv4 in IPv6 is IPv4. Both are empty for another family.
PeerAddress Describe(const sockaddr_storage& address);

}  // namespace gemmd::server
