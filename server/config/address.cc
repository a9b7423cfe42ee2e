#include "server/config/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/config/fields.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kUnixAbstract = "unix-abstract:";
constexpr size_t kMaxUnixBytes = 107;  // sockaddr_un::sun_path, less a NUL
constexpr int kMaxPort = 65535;

absl::Status Invalid(const std::string& path, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", message));
}

struct HostPort {
  std::string host;
  std::string port;
  bool brackets = false;
};

std::optional<HostPort> Split(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  HostPort split{std::string(address.substr(0, colon)), std::string(address.substr(colon + 1))};
  if (split.host.size() >= 2 && split.host.front() == '[' && split.host.back() == ']') {
    split.host = split.host.substr(1, split.host.size() - 2);
    split.brackets = true;
  }
  if (split.host.empty() || split.port.empty()) return std::nullopt;
  return split;
}

bool IsPort(const std::string& port) {
  if (port.empty() || port.size() > 5) return false;
  int value = 0;
  for (const char digit : port) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(digit))) return false;
    value = value * 10 + (digit - '0');
  }
  return value <= kMaxPort;
}

enum class HostKind { kWrong, kLoopback, kOther };

HostKind Classify(const HostPort& address) {
  if (address.brackets) {
    in6_addr v6;
    if (inet_pton(AF_INET6, address.host.c_str(), &v6) != 1) return HostKind::kWrong;
    return IN6_IS_ADDR_LOOPBACK(&v6) ? HostKind::kLoopback : HostKind::kOther;
  }
  if (address.host == "localhost") return HostKind::kLoopback;
  in_addr v4;
  if (inet_pton(AF_INET, address.host.c_str(), &v4) != 1) return HostKind::kWrong;
  return ntohl(v4.s_addr) >> 24 == 127 ? HostKind::kLoopback : HostKind::kOther;
}

// As the kernel has them: addresses in bytes, and nothing for all that there are, which one socket
// takes of both kinds.
std::vector<std::string> HostsOf(const HostPort& address) {
  in6_addr v6;
  in_addr v4;
  const auto bytes = [](const auto& host) {
    return std::string(reinterpret_cast<const char*>(&host), sizeof(host));
  };
  if (inet_pton(AF_INET6, address.host.c_str(), &v6) == 1) {
    if (IN6_IS_ADDR_UNSPECIFIED(&v6)) return {};
    return {bytes(v6)};
  }
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) {
    if (v4.s_addr == INADDR_ANY) return {};
    return {bytes(v4)};
  }
  v4.s_addr = htonl(INADDR_LOOPBACK);  // localhost
  return {bytes(v4), bytes(in6addr_loopback)};
}

// gRPC reads a Unix address as a URI: a character outside this set would change its meaning.
bool IsUriPathChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("-_.~!$&'()*+,;=:@/").find(c) != std::string_view::npos;
}

absl::Status CheckUnixName(const std::string& path, std::string_view name, const char* what) {
  if (name.empty()) {
    return Invalid(path, absl::StrCat("an empty ", what, "; give 1 to ", kMaxUnixBytes, " bytes"));
  }
  if (name.size() > kMaxUnixBytes) {
    return Invalid(path, absl::StrCat(what, " ", Quoted(name), " of ", name.size(),
                                      " bytes is above ", kMaxUnixBytes, "; choose a shorter one"));
  }
  for (const char c : name) {
    if (!IsUriPathChar(c)) {
      return Invalid(path, absl::StrCat(what, " ", Quoted(name), " has the character ",
                                        Quoted(std::string_view(&c, 1)),
                                        "; use letters, digits and -_.~!$&'()*+,;=:@/"));
    }
  }
  return absl::OkStatus();
}

// Splits and checks everything but which host it is.
absl::Status CheckTcp(const std::string& path, std::string_view address, HostKind* kind,
                      int usual_port = 8470) {
  const std::optional<HostPort> split = Split(address);
  if (!split || IsUnix(address)) {
    return Invalid(path, absl::StrCat(Quoted(address), " is not host:port; give for example ",
                                      "127.0.0.1:", usual_port, " or [::1]:", usual_port));
  }
  if (!IsPort(split->port)) {
    return Invalid(path, absl::StrCat("port ", Quoted(split->port), " is not in 0 to ", kMaxPort,
                                      "; give a number, 0 for any free port"));
  }
  *kind = Classify(*split);
  if (*kind == HostKind::kWrong) {
    return Invalid(path, absl::StrCat("host ", Quoted(split->host), " is not an IP address; give ",
                                      "127.0.0.1, localhost, or an IPv6 address in brackets"));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsUnixPath(std::string_view address) { return address.starts_with(kUnix); }

bool IsUnix(std::string_view address) {
  return IsUnixPath(address) || address.starts_with(kUnixAbstract);
}

bool HasFreePort(std::string_view address) {
  const std::optional<HostPort> split = Split(address);
  return split && !IsUnix(address) && split->port.find_first_not_of('0') == std::string::npos;
}

bool Collide(std::string_view one, std::string_view other) {
  if (HasFreePort(one) || HasFreePort(other)) return false;
  if (one == other) return true;
  const std::optional<HostPort> first = Split(one), second = Split(other);
  if (IsUnix(one) || IsUnix(other) || !first || !second) return false;
  int port = 0, other_port = 0;
  if (!absl::SimpleAtoi(first->port, &port) || !absl::SimpleAtoi(second->port, &other_port) ||
      port != other_port) {
    return false;
  }
  const std::vector<std::string> hosts = HostsOf(*first), other_hosts = HostsOf(*second);
  return hosts.empty() || other_hosts.empty() ||
         std::find_first_of(hosts.begin(), hosts.end(), other_hosts.begin(), other_hosts.end()) !=
             hosts.end();
}

absl::Status CheckSocketPath(const std::string& path, std::string_view socket_path) {
  if (socket_path.starts_with(kUnix)) {
    return Invalid(path, absl::StrCat(Quoted(socket_path), " is a path here; leave out unix:"));
  }
  if (!socket_path.empty() && !socket_path.starts_with('/')) {
    return Invalid(path, absl::StrCat(Quoted(socket_path),
                                      " is a relative path; give an absolute one, such as ",
                                      "/run/gemmd/gemmd.sock"));
  }
  return CheckUnixName(path, socket_path, "socket path");
}

absl::Status CheckListenAddress(const std::string& path, std::string_view address,
                                bool beyond_loopback) {
  if (address.empty()) {
    return Invalid(path, "none given; give for example 127.0.0.1:8470 or unix:/run/gemmd.sock");
  }
  if (IsUnixPath(address)) return CheckSocketPath(path, address.substr(kUnix.size()));
  if (address.starts_with(kUnixAbstract)) {
    return CheckUnixName(path, address.substr(kUnixAbstract.size()), "abstract socket name");
  }
  HostKind kind = HostKind::kWrong;
  GEMMD_RETURN_IF_ERROR(CheckTcp(path, address, &kind));
  if (kind == HostKind::kLoopback || beyond_loopback) return absl::OkStatus();
  return Invalid(path,
                 absl::StrCat(Quoted(address),
                              " is not a loopback address and would speak plaintext; set tls, or "
                              "plaintext_beyond_loopback: true if the network keeps others out, or "
                              "listen on 127.0.0.1, [::1] or a Unix socket"));
}

absl::Status CheckCollectorAddress(const std::string& path, std::string_view address,
                                   bool beyond_loopback) {
  if (IsUnixPath(address)) return CheckSocketPath(path, address.substr(kUnix.size()));
  const std::optional<HostPort> split = Split(address);
  const auto in_name = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '.';
  };
  // A name is looked up when it is called; what is in brackets has to be an address now.
  const bool named = split && !split->host.empty() && !split->brackets &&
                     std::all_of(split->host.begin(), split->host.end(), in_name);
  if (!named && (!split || Classify(*split) == HostKind::kWrong)) {
    return Invalid(path, absl::StrCat(Quoted(address), " is not host:port; give for example ",
                                      "127.0.0.1:4317 or collector.example:4317"));
  }
  if (!IsPort(split->port) || HasFreePort(address)) {
    return Invalid(path, absl::StrCat("port ", Quoted(split->port), " is not in 1 to ", kMaxPort,
                                      "; collectors listen on 4317"));
  }
  if (Classify(*split) == HostKind::kLoopback || beyond_loopback) return absl::OkStatus();
  return Invalid(path, absl::StrCat(Quoted(address),
                                    " is not a loopback address and would be sent plaintext; set "
                                    "ca_file, or plaintext_beyond_loopback: true if the network "
                                    "keeps others out"));
}

absl::Status CheckMetricsAddress(const std::string& path, std::string_view address) {
  HostKind kind = HostKind::kWrong;
  return CheckTcp(path, address, &kind, 8471);
}

}  // namespace gemmd::server
