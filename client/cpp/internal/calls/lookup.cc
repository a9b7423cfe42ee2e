#include "client/cpp/internal/calls/lookup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cpp/internal/connect/target.h"

namespace gemmd::client {
namespace {

struct Free {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

std::string AddressText(const addrinfo& info, absl::string_view port) {
  char text[INET6_ADDRSTRLEN];
  const bool v6 = info.ai_family == AF_INET6;
  const void* address =
      v6 ? static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(info.ai_addr)->sin6_addr)
         : static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(info.ai_addr)->sin_addr);
  inet_ntop(info.ai_family, address, text, sizeof(text));
  return absl::StrCat(v6 ? "[" : "", text, v6 ? "]:" : ":", port);
}

// Name and port of a target that is one; the port is empty otherwise.
std::pair<std::string, std::string> HostAndPort(absl::string_view target) {
  if (ReachOf(target) != Reach::kNetwork) return {};
  if (!absl::ConsumePrefix(&target, "dns:///")) absl::ConsumePrefix(&target, "dns:");
  const size_t colon = target.find(':');
  // Two colons: an IPv6 address, or a scheme of gRPC's that is not looked into.
  if (colon == target.npos || target.find(':', colon + 1) != target.npos) return {};
  const std::string host(target.substr(0, colon));
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return {};
  return {host, std::string(target.substr(colon + 1))};
}

}  // namespace

std::string NameOf(const std::string& target) { return HostAndPort(target).first; }

absl::StatusOr<std::vector<std::string>> LookUpTarget(const std::string& target) {
  const auto [host, port] = HostAndPort(target);
  if (port.empty()) return std::vector<std::string>{target};
  const addrinfo hints = {.ai_flags = AI_ADDRCONFIG, .ai_socktype = SOCK_STREAM};
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, Free> owned(list);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot look up '", host, "': ", gai_strerror(error)));
  }
  std::vector<std::string> addresses;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    if (info->ai_family == list->ai_family) addresses.push_back(AddressText(*info, port));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

}  // namespace gemmd::client
