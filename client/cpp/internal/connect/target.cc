#include "client/cpp/internal/connect/target.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd::client {
namespace {

// "[::1]:8470", "127.0.0.1:8470", "localhost", without what follows the host.
std::string HostOf(absl::string_view address) {
  if (absl::ConsumePrefix(&address, "[")) {
    return std::string(address.substr(0, address.find(']')));
  }
  // Two colons or more without brackets are an IPv6 address that has no port.
  if (std::count(address.begin(), address.end(), ':') > 1) return std::string(address);
  return std::string(address.substr(0, address.find(':')));
}

// Parsed, never matched as text: "127.0.0.1.example.com" is somebody's name.
bool IsLoopback(absl::string_view address) {
  const std::string host = HostOf(address);
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

Reach ReachOf(absl::string_view target) {
  if (absl::StartsWith(target, "unix:") || absl::StartsWith(target, "unix-abstract:")) {
    return Reach::kUnixSocket;
  }
  // These two may list several addresses: the farthest counts.
  if (absl::ConsumePrefix(&target, "ipv4:") || absl::ConsumePrefix(&target, "ipv6:")) {
    const std::vector<absl::string_view> addresses = absl::StrSplit(target, ',');
    return std::all_of(addresses.begin(), addresses.end(), IsLoopback) ? Reach::kLoopback
                                                                       : Reach::kNetwork;
  }
  // "dns:///host": a server that is asked for the name could stand before the third slash.
  if (!absl::ConsumePrefix(&target, "dns:///")) absl::ConsumePrefix(&target, "dns:");
  return IsLoopback(target) ? Reach::kLoopback : Reach::kNetwork;
}

}  // namespace gemmd::client
