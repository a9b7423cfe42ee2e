#include "server/service/unix_acceptor.h"

#include <grpcpp/server.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "server/engine/text.h"

namespace gemmd::server {
namespace {

// Out of descriptors or memory: the listener stays readable, so wait before trying again.
constexpr absl::Duration kAcceptRetry = absl::Milliseconds(50);

}  // namespace

absl::StatusOr<std::unique_ptr<UnixAcceptor>> UnixAcceptor::Bind(const UnixListenerOptions& options,
                                                                 Log& log) {
  auto listener = UnixListener::Bind(options);
  if (!listener.ok()) return listener.status();
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  return std::unique_ptr<UnixAcceptor>(
      new UnixAcceptor(*std::move(listener), std::move(wake), log));
}

UnixAcceptor::UnixAcceptor(UnixListener listener, UniqueFd wake, Log& log)
    : listener_(std::move(listener)), wake_(std::move(wake)), log_(log) {}

UnixAcceptor::~UnixAcceptor() { Stop(); }

void UnixAcceptor::Start(grpc::Server& server) {
  thread_ = std::thread([this, &server] { Run(server); });
}

void UnixAcceptor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void UnixAcceptor::Run(grpc::Server& server) {
  while (true) {
    pollfd polled[] = {{wake_.get(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    if (poll(polled, 2, -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    AcceptAll(server);
  }
}

void UnixAcceptor::AcceptAll(grpc::Server& server) {
  while (true) {
    UniqueFd connection(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) {
        log_.Warning("accept_failed",
                     {{"address", listener_.address()}, {"error", std::strerror(errno)}});
        absl::SleepFor(kAcceptRetry);
      }
      return;
    }
    ucred peer = {};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) continue;
    {
      absl::MutexLock lock(&mutex_);
      peers_[connection.get()] = {peer.uid, peer.pid};
    }
    grpc::AddInsecureChannelFromFd(&server, connection.release());
  }
}

std::optional<UnixPeer> UnixAcceptor::Find(std::string_view peer) const {
  absl::string_view number = Text(peer);
  int fd = 0;
  if (!absl::ConsumePrefix(&number, "fd:") || !absl::SimpleAtoi(number, &fd)) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  const auto found = peers_.find(fd);
  if (found == peers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace gemmd::server
