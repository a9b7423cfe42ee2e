// HTTP of one page, on plain sockets and one thread. prometheus-cpp's own server cannot be used:
// its workers have 100 KiB of stack, of which thread-local storage takes its part first (12 KiB
// with cudart linked in), and a scrape ran off their end. Civetweb itself and cpp-httplib give a
// peer a thread until it has sent its request, so that a few that send half of one keep scrapers
// out.

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/engine/observe/exposition.h"
#include "server/engine/observe/metrics.h"
#include "server/engine/share/tcp_listener.h"

namespace gemmd::server {
namespace {

// A peer that has not taken its answer by then is cut.
constexpr absl::Duration kPatience = absl::Seconds(5);
// Of one more the oldest gives way: a scraper is answered as soon as its request is here, so those
// that stay are slow.
constexpr size_t kMostPeers = 64;
constexpr size_t kMaxRequestBytes = 16384;
constexpr absl::Duration kWithoutDescriptors =
    absl::Milliseconds(50);  // until accept is tried again

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

// One connection: its request comes in, its answer goes out, as far as either is possible at once.
class Peer {
 public:
  Peer(UniqueFd socket, absl::Time deadline) : socket_(std::move(socket)), deadline_(deadline) {}

  pollfd Wanted() const {
    return {socket_.get(), static_cast<short>(answer_.empty() ? POLLIN : POLLOUT), 0};
  }
  absl::Time deadline() const { return deadline_; }
  bool answering() const { return !answer_.empty(); }

  // False when nothing more is to be done here.
  bool Advance(const Exposition& exposition) {
    if (!answering()) {
      if (!Read()) return false;
      const size_t end = request_.find("\r\n\r\n");
      if (end == std::string::npos) return request_.size() <= kMaxRequestBytes;
      answer_ = Answer(std::string_view(request_).substr(0, request_.find("\r\n")), exposition);
    }
    return Write();
  }

 private:
  bool Read() {
    char buffer[4096];
    const ssize_t got = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got > 0) request_.append(buffer, static_cast<size_t>(got));
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }
  bool Write() {
    const std::string_view rest = std::string_view(answer_).substr(sent_);
    const ssize_t sent = send(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) sent_ += static_cast<size_t>(sent);
    return sent_ < answer_.size() && (sent > 0 || errno == EAGAIN || errno == EINTR);
  }

  const UniqueFd socket_;
  const absl::Time deadline_;
  std::string request_;
  std::string answer_;
  size_t sent_ = 0;
};

}  // namespace

struct MetricsServer::Impl {
  // One thread for all peers, which therefore cannot wait for any of them.
  void Serve() {
    std::vector<pollfd> polled;
    do {
      polled = {{stop.get(), POLLIN, 0}};
      for (const int fd : listening) polled.push_back({AcceptsNow() ? fd : -1, POLLIN, 0});
      for (const auto& peer : peers) polled.push_back(peer->Wanted());
      poll(polled.data(), polled.size(), TimeoutMs());
      auto ready = polled.begin() + 1 + listening.size();
      const absl::Time now = absl::Now();
      std::erase_if(peers, [&](const std::unique_ptr<Peer>& peer) {
        const bool moves = (ready++)->revents != 0;
        return (moves && !peer->Advance(*exposition)) || peer->deadline() <= now;
      });
      for (size_t i = 0; i < listening.size(); ++i) {
        if (polled[1 + i].revents != 0) Accept(listening[i]);
      }
    } while (polled[0].revents == 0);
  }

  bool AcceptsNow() const { return absl::Now() >= accept_at; }

  // Until the first peer's patience ends, or accept is to be tried again.
  int TimeoutMs() const {
    absl::Time next = peers.empty() ? absl::InfiniteFuture() : peers.front()->deadline();
    if (!AcceptsNow()) next = std::min(next, accept_at);
    if (next == absl::InfiniteFuture()) return -1;
    const int64_t ms = absl::ToInt64Milliseconds(next - absl::Now()) + 1;
    return static_cast<int>(std::max<int64_t>(0, ms));
  }

  // As many as may stay: what comes in a rush must not fill the system's queue either.
  void Accept(int listening_fd) {
    for (size_t i = 0; i < kMostPeers; ++i) {
      UniqueFd socket(accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket.valid()) return NoteRefusal(errno);
      if (peers.size() >= kMostPeers) DropOldest();
      peers.push_back(std::make_unique<Peer>(std::move(socket), absl::Now() + kPatience));
    }
  }

  void NoteRefusal(int error) {
    if (error != EMFILE && error != ENFILE) return;
    // The connection stays pending, so poll would return at once.
    DropOldest();
    accept_at = absl::Now() + kWithoutDescriptors;
  }

  // Of those that have sent no request yet, or else of all.
  void DropOldest() {
    auto oldest = std::find_if(peers.begin(), peers.end(),
                               [](const auto& peer) { return !peer->answering(); });
    if (oldest == peers.end()) oldest = peers.begin();
    if (oldest != peers.end()) peers.erase(oldest);
  }

  std::shared_ptr<const Exposition> exposition;  // shared with Metrics: it may go first
  std::optional<TcpListener> listener;
  std::vector<int> listening;  // its sockets
  int port = 0;
  UniqueFd stop;  // an eventfd: readable from the moment the thread must end
  // The thread's:
  std::vector<std::unique_ptr<Peer>> peers;  // by age, and so by deadline
  absl::Time accept_at = absl::InfinitePast();
  std::thread thread;
};

MetricsServer::MetricsServer() : impl_(std::make_unique<Impl>()) {}

MetricsServer::~MetricsServer() {
  if (impl_->stop.valid()) eventfd_write(impl_->stop.get(), 1);
  if (impl_->thread.joinable()) impl_->thread.join();
}

int MetricsServer::port() const { return impl_->port; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    const Metrics& metrics) {
  absl::StatusOr<TcpListener> listener = TcpListener::Bind(address);
  if (!listener.ok()) {
    return absl::UnavailableError(absl::StrCat("metrics.address: ", listener.status().message()));
  }
  auto server = std::unique_ptr<MetricsServer>(new MetricsServer);
  Impl& impl = *server->impl_;
  impl.exposition = metrics.exposition();
  const std::string& bound = listener->address();
  (void)absl::SimpleAtoi(bound.substr(bound.rfind(':') + 1), &impl.port);
  impl.listening = listener->fds();
  impl.listener = *std::move(listener);
  impl.stop = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!impl.stop.valid()) return absl::ErrnoToStatus(errno, "metrics.address: eventfd");
  impl.thread = std::thread([&impl] { impl.Serve(); });
  return server;
}

}  // namespace gemmd::server
