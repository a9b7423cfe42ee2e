#include "server/engine/share/tcp_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace gemmd::server {
namespace {

// Data that the other side's kernel does not acknowledge ends a connection after this long.
constexpr int kUserTimeoutMs = 5'000;

struct TcpAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  in_port_t& port() {
    return storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                         : reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  }
};

absl::Status CannotListen(const std::string& address, const std::string& why,
                          absl::string_view remedy) {
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": ", why, "; ", remedy));
}

// After a bind that failed with `error`.
std::string RemedyOf(int error, absl::string_view port) {
  if (error == EADDRINUSE) {
    return absl::StrCat("'ss -ltnp sport = :", port,
                        "' names who listens there; stop it, or choose another port");
  }
  if (error == EACCES) return "choose a port above 1023";
  return "choose an address that this host has";
}

absl::StatusOr<std::vector<TcpAddress>> Resolve(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<TcpAddress> addresses;
  for (; found != nullptr; found = found->ai_next) {
    TcpAddress address{.bytes = found->ai_addrlen};
    std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    addresses.push_back(address);
  }
  return addresses;
}

// What `address` became is put into it: a port for 0. Invalid with errno set when it cannot be.
UniqueFd Listen(TcpAddress& address) {
  UniqueFd socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket.valid()) return socket;
  const int fd = socket.get();
  const int on = 1, off = 0;
  // Connections inherit the second and the third.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
  if (address.storage.ss_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd, address.get(), address.bytes) == 0 && listen(fd, SOMAXCONN) == 0 &&
      getsockname(fd, address.get(), &address.bytes) == 0) {
    return socket;
  }
  const int error = errno;
  socket = UniqueFd();
  errno = error;
  return socket;
}

}  // namespace

absl::StatusOr<TcpListener> TcpListener::Bind(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return CannotListen(address, "it has no port", "give host:port");
  absl::string_view host(address.data(), colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  const std::string port = address.substr(colon + 1);
  // The wildcard of IPv6 takes IPv4 too; a host without IPv6 has its own alone.
  std::vector<std::string> hosts = {std::string(host)};
  const bool wildcard = host == "0.0.0.0" || host == "::";
  if (wildcard) hosts = {"::", "0.0.0.0"};
  TcpListener listener;
  std::string error = "no such address", remedy = RemedyOf(0, port);
  in_port_t taken = 0;
  for (const std::string& name : hosts) {
    if (wildcard && !listener.sockets_.empty()) break;
    auto resolved = Resolve(name, port);
    if (!resolved.ok()) {
      error = std::string(resolved.status().message());
      continue;
    }
    for (TcpAddress& each : *resolved) {
      if (each.port() == 0) each.port() = taken;  // the addresses of a name have one port
      UniqueFd socket = Listen(each);
      if (!socket.valid()) {
        const int why = errno;
        remedy = RemedyOf(why, port);
        error = std::strerror(why);
        // Somebody else's clients may use the name: those whom it leads to the other address would
        // reach him. A port of the system's choice is known to nobody yet.
        if (why == EADDRINUSE && port != "0") return CannotListen(address, error, remedy);
        continue;
      }
      taken = each.port();
      listener.sockets_.push_back(std::move(socket));
    }
  }
  if (listener.sockets_.empty()) return CannotListen(address, error, remedy);
  listener.address_ = absl::StrCat(address.substr(0, colon), ":", ntohs(taken));
  return listener;
}

std::vector<int> TcpListener::fds() const {
  std::vector<int> fds;
  for (const UniqueFd& socket : sockets_) fds.push_back(socket.get());
  return fds;
}

}  // namespace gemmd::server
