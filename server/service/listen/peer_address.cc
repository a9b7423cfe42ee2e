#include "server/service/listen/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace gemmd::server {
namespace {

constexpr int kNetworkBytes = 8;  // a host has all addresses of its network

PeerAddress DescribeIpv4(const in_addr& address, in_port_t port) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return {.name = absl::StrCat("ipv4:", text, ":", ntohs(port)), .host = text};
}

PeerAddress DescribeIpv6(const sockaddr_in6& address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
  const std::string name = absl::StrCat("ipv6:%5B", text, "%5D:", ntohs(address.sin6_port));
  in6_addr network = address.sin6_addr;
  std::fill(network.s6_addr + kNetworkBytes, network.s6_addr + sizeof(network.s6_addr), 0);
  inet_ntop(AF_INET6, &network, text, sizeof(text));
  return {.name = name, .host = text};
}

}  // namespace

PeerAddress Describe(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return DescribeIpv4(ipv4.sin_addr, ipv4.sin_port);
  }
  if (address.ss_family != AF_INET6) return {};
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (!IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) return DescribeIpv6(ipv6);
  in_addr ipv4;
  std::memcpy(&ipv4, ipv6.sin6_addr.s6_addr + 12, sizeof(ipv4));
  return DescribeIpv4(ipv4, ipv6.sin6_port);
}

}  // namespace gemmd::server
