// HTTP of one page, on plain sockets and threads. prometheus-cpp's own server cannot be used: its
// workers have 100 KiB of stack, of which thread-local storage takes its part first (12 KiB with
// cudart linked in), and a scrape ran off their end.

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/engine/exposition.h"
#include "server/engine/metrics.h"
#include "server/engine/share.h"

namespace gemmd::server {
namespace {

constexpr int kThreads = 2;  // a scraper and a curious person
constexpr absl::Duration kPatience =
    absl::Seconds(5);  // a peer that says nothing gives up its place
constexpr size_t kMaxRequestBytes = 16384;

// Waits for `events` on `fd`. False at the deadline and once `stop` is readable.
bool Await(int fd, short events, int stop, absl::Time deadline) {
  pollfd fds[2] = {{fd, events, 0}, {stop, POLLIN, 0}};
  for (;;) {
    int64_t left_ms = -1;
    if (deadline != absl::InfiniteFuture()) {
      left_ms = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - absl::Now()));
    }
    const int ready = poll(fds, 2, static_cast<int>(left_ms));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && fds[1].revents == 0;
  }
}

// The request's first line; empty when it does not come whole.
std::string ReadRequest(int peer, int stop, absl::Time deadline) {
  std::string request;
  char buffer[4096];
  while (request.find("\r\n\r\n") == std::string::npos) {
    if (request.size() > kMaxRequestBytes || !Await(peer, POLLIN, stop, deadline)) return "";
    const ssize_t got = recv(peer, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return "";
    request.append(buffer, got);
  }
  return request.substr(0, request.find("\r\n"));
}

void Write(int peer, int stop, std::string_view data, absl::Time deadline) {
  while (!data.empty() && Await(peer, POLLOUT, stop, deadline)) {
    const ssize_t sent = send(peer, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
    if (sent > 0) data.remove_prefix(sent);
  }
}

std::string Answer(std::string_view line, const Exposition& exposition) {
  const auto reply = [](const char* status, const std::string& body) {
    return absl::StrCat("HTTP/1.1 ", status,
                        "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
                        "Content-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
  };
  if (!line.starts_with("GET ")) return reply("405 Method Not Allowed", "only GET is served\n");
  line.remove_prefix(4);
  const std::string_view path = line.substr(0, line.find_first_of(" ?"));
  if (path != "/metrics") return reply("404 Not Found", "metrics are at /metrics\n");
  return reply("200 OK", exposition.Text());
}

struct Bound {
  UniqueFd socket;
  int port = 0;
};

// `address` as config checks it: "127.0.0.1:8471", "[::1]:0".
absl::StatusOr<Bound> Listen(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  if (int code = getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
      code != 0) {
    return absl::UnavailableError(gai_strerror(code));
  }
  const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  Bound bound{UniqueFd(socket(found->ai_family, type, 0))};
  const int on = 1;
  const bool listens =
      bound.socket.valid() &&
      setsockopt(bound.socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(bound.socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
      listen(bound.socket.get(), 16) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (!listens) return absl::UnavailableError(std::strerror(error));
  sockaddr_storage name = {};
  socklen_t length = sizeof(name);
  char port[NI_MAXSERV] = "";
  if (getsockname(bound.socket.get(), reinterpret_cast<sockaddr*>(&name), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&name), length, nullptr, 0, port, sizeof(port),
                  NI_NUMERICSERV) != 0 ||
      !absl::SimpleAtoi(port, &bound.port)) {
    return absl::UnavailableError("its port is not known");
  }
  return bound;
}

}  // namespace

struct MetricsServer::Impl {
  void Serve() {
    while (Await(listener.socket.get(), POLLIN, stop.get(), absl::InfiniteFuture())) {
      // Both threads wake; the one that comes second finds nothing and waits on.
      const UniqueFd peer(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.valid()) {
        // Out of descriptors: the connection stays pending, so poll would return at once.
        if (errno == EMFILE || errno == ENFILE) absl::SleepFor(absl::Milliseconds(50));
        continue;
      }
      const absl::Time deadline = absl::Now() + kPatience;
      const std::string line = ReadRequest(peer.get(), stop.get(), deadline);
      if (!line.empty()) Write(peer.get(), stop.get(), Answer(line, *exposition), deadline);
    }
  }

  std::shared_ptr<const Exposition> exposition;  // shared with Metrics: it may go first
  Bound listener;
  UniqueFd stop;  // an eventfd: readable from the moment the threads must end
  std::vector<std::thread> threads;
};

MetricsServer::MetricsServer() : impl_(std::make_unique<Impl>()) {}

MetricsServer::~MetricsServer() {
  if (impl_->stop.valid()) eventfd_write(impl_->stop.get(), 1);
  for (std::thread& thread : impl_->threads) thread.join();
}

int MetricsServer::port() const { return impl_->listener.port; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    const Metrics& metrics) {
  absl::StatusOr<Bound> bound = Listen(address);
  if (!bound.ok()) {
    return absl::UnavailableError(absl::StrCat("metrics.address: cannot listen on ", address, " (",
                                               bound.status().message(),
                                               "); free the port or choose another"));
  }
  auto server = std::unique_ptr<MetricsServer>(new MetricsServer);
  Impl& impl = *server->impl_;
  impl.exposition = metrics.exposition();
  impl.listener = *std::move(bound);
  impl.stop = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!impl.stop.valid()) return absl::ErrnoToStatus(errno, "metrics.address: eventfd");
  for (int i = 0; i < kThreads; ++i) impl.threads.emplace_back([&impl] { impl.Serve(); });
  return server;
}

}  // namespace gemmd::server
