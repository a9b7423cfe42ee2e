#include "server/engine/share/share.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/engine/share/share_peer.h"
#include "server/engine/share/share_tokens.h"
#include "server/engine/share/unix_listener.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// How often peers and tokens are looked at while there are any. Expiry goes by the Clock, which a
// poll cannot wait on.
constexpr int kTickMs = 50;

// One part in `part` of the descriptors that this process may have, at most `most`.
int OfDescriptors(int part, int most) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / part, 2, most));
}

absl::StatusOr<UniqueFd> Duplicate(int fd, bool writable) {
  UniqueFd copy;
  if (writable) {
    copy = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  } else {
    // Fails when the file is another user's, who could write to it anyway.
    (void)fchmod(fd, 0400);
    copy = UniqueFd(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC));
  }
  if (copy.valid()) return copy;
  const std::string what = absl::StrCat("cannot share descriptor ", fd, ": ", std::strerror(errno));
  if (errno == EMFILE || errno == ENFILE) {
    return absl::ResourceExhaustedError(absl::StrCat(what, "; raise the limit of open files"));
  }
  return absl::InternalError(what);
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (valid()) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (valid()) close(fd_);
}

// One thread does everything but Offer and Redeem, which only touch the tokens.
struct ShareSocket::Impl {
  Impl(UnixListener bound, UniqueFd wake_fd, const Clock& time, Log& lines)
      : listener(std::move(bound)),
        wake(std::move(wake_fd)),
        clock(time),
        log(lines),
        most_peers(OfDescriptors(8, kMaxPeers)),
        tokens(time, OfDescriptors(8, kMaxPending)) {
    thread = std::thread([this] { Run(); });
  }
  ~Impl() {
    stopping.store(true);
    Wake();
    thread.join();
  }

  void Wake() {
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the thread is awake.
    (void)!write(wake.get(), &one, sizeof(one));
  }

  void Run();
  void Accept();
  void ServePeers(const std::vector<pollfd>& polled);
  void CutStalledPeers();

  UnixListener listener;
  const UniqueFd wake;  // eventfd: there is a token, or the end
  const Clock& clock;
  Log& log;
  const size_t most_peers;
  ShareTokens tokens;
  std::atomic<bool> stopping{false};
  // The thread's own:
  std::vector<SharePeer> peers;
  bool accept_failing = false;  // since the last peer that came
  bool pause_accept = false;    // until the next tick: the listener stays readable
  std::thread thread;
};

void ShareSocket::Impl::Run() {
  constexpr size_t kFixed = 2;  // the wake-up and the listener stand before the peers
  std::vector<pollfd> polled;
  while (!stopping.load()) {
    const bool waiting = tokens.DropExpired() > 0;
    CutStalledPeers();
    const bool paused = std::exchange(pause_accept, false);
    const bool accepting = peers.size() < most_peers && !paused;
    polled.clear();
    polled.push_back({wake.get(), POLLIN, 0});
    polled.push_back({accepting ? listener.fd() : -1, POLLIN, 0});
    for (const SharePeer& peer : peers) polled.push_back({peer.fd(), POLLIN, 0});
    const bool tick = waiting || !peers.empty() || paused;
    if (poll(polled.data(), polled.size(), tick ? kTickMs : -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) {
      uint64_t count;
      (void)!read(wake.get(), &count, sizeof(count));
    }
    const bool arrivals = polled[1].revents != 0;
    polled.erase(polled.begin(), polled.begin() + kFixed);
    ServePeers(polled);
    if (arrivals) Accept();
  }
}

void ShareSocket::Impl::Accept() {
  while (peers.size() < most_peers) {
    UniqueFd connection(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      accept_failing = false;
      peers.emplace_back(std::move(connection), clock.Now());
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return;
    // Out of descriptors or memory. One line for the whole spell: the next tick tries again.
    if (!accept_failing) log.Warning("share_accept_failed", {{"error", std::strerror(errno)}});
    accept_failing = true;
    pause_accept = true;
    return;
  }
}

// `polled` stands in the order of `peers`.
void ShareSocket::Impl::ServePeers(const std::vector<pollfd>& polled) {
  std::vector<SharePeer> staying;
  for (size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0 || peers[i].OnReadable(tokens) == SharePeer::Progress::kMore) {
      staying.push_back(std::move(peers[i]));
    }
  }
  peers = std::move(staying);
}

void ShareSocket::Impl::CutStalledPeers() {
  const absl::Time now = clock.Now();
  const absl::Duration life = peers.size() < most_peers ? kPeerLife : kPeerLifeWhenFull;
  const size_t cut =
      std::erase_if(peers, [&](const SharePeer& peer) { return now - peer.since() >= life; });
  if (cut > 0) log.Debug("share_peers_cut", {{"peers", cut}});
}

ShareSocket::ShareSocket() = default;
ShareSocket::~ShareSocket() = default;

absl::StatusOr<std::unique_ptr<ShareSocket>> ShareSocket::Start(const ShareConfig& config,
                                                                const Clock& clock, Log& log) {
  GEMMD_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Bind({.path = config.socket_path,
                                                                    .field = "share.socket_path"}));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  auto socket = std::unique_ptr<ShareSocket>(new ShareSocket);
  socket->address_ = listener.address();
  socket->impl_ = std::make_unique<Impl>(std::move(listener), std::move(wake), clock, log);
  return socket;
}

absl::StatusOr<Handle> ShareSocket::Offer(int fd, bool writable, std::string_view owner) {
  GEMMD_ASSIGN_OR_RETURN(UniqueFd copy, Duplicate(fd, writable));
  absl::StatusOr<Handle> token = impl_->tokens.Add(ShareTokens::Way::kGet, std::move(copy), owner);
  impl_->Wake();  // the thread begins to watch expiries
  return token;
}

absl::StatusOr<UniqueFd> ShareSocket::Redeem(const Handle& token) {
  std::optional<UniqueFd> fd = impl_->tokens.Take(ShareTokens::Way::kPut, token);
  if (fd) return *std::move(fd);
  return absl::NotFoundError(
      "no such token: it is unknown, used, or older than 10 s; send the descriptor to the share "
      "socket again");
}

}  // namespace gemmd::server
