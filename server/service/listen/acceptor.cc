#include "server/service/listen/acceptor.h"

#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
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
#include "server/service/listen/peer_address.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

using guard::Refusal;

// How often a listener that cannot accept tries again.
constexpr int kTickMs = 50;
// For how long it may before health is told.
constexpr absl::Duration kTolerance = absl::Milliseconds(500);
// At most one line in this time for connections above a peer's limit, and one for spells, which
// come by the dozen when a descriptor is free now and then.
constexpr absl::Duration kLineEvery = absl::Seconds(10);

bool IsUnix(const ListenerConfig& config) {
  return config.address.starts_with("unix:") || config.address.starts_with("unix-abstract:");
}

absl::StatusOr<UnixListener> BindUnix(const ListenerConfig& config) {
  absl::string_view name = config.address;
  UnixListenerOptions options{.mode = static_cast<mode_t>(config.unix_mode),
                              .field = absl::StrCat("listener ", config.address)};
  if (absl::ConsumePrefix(&name, "unix:")) {
    options.path = std::string(name);
  } else if (absl::ConsumePrefix(&name, "unix-abstract:")) {
    options.abstract_name = std::string(name);
  }
  return UnixListener::Bind(options);
}

UniqueFd OpenReserve() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool OutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Bind(const ListenerConfig& config,
                                                         guard::Connections& connections,
                                                         Log& log) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(errno)));
  }
  std::optional<Bound> bound;
  if (IsUnix(config)) {
    GEMMD_ASSIGN_OR_RETURN(auto listener, BindUnix(config));
    bound.emplace(std::move(listener));
  } else {
    GEMMD_ASSIGN_OR_RETURN(auto listener, TcpListener::Bind(config.address));
    bound.emplace(std::move(listener));
  }
  return std::unique_ptr<Acceptor>(
      new Acceptor(*std::move(bound), config, std::move(wake), connections, log));
}

Acceptor::Acceptor(Bound bound, const ListenerConfig& config, UniqueFd wake,
                   guard::Connections& connections, Log& log)
    : bound_(std::move(bound)),
      address_(std::visit([](const auto& listener) { return listener.address(); }, bound_)),
      unix_(std::holds_alternative<UnixListener>(bound_)),
      tls_(config.tls.has_value()),
      health_only_(config.health_only),
      wake_(std::move(wake)),
      connections_(connections),
      log_(log),
      reserve_(OpenReserve()) {}

Acceptor::~Acceptor() { Stop(); }

void Acceptor::Register(grpc::ServerBuilder& builder,
                        std::shared_ptr<grpc::ServerCredentials> credentials) {
  if (unix_) return;
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  external_ =
      builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, std::move(credentials));
}

void Acceptor::Start(grpc::Server& server) {
  server_ = &server;
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void Acceptor::Run() {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  if (unix_) {
    polled.push_back({std::get<UnixListener>(bound_).fd(), POLLIN, 0});
  } else {
    for (const int fd : std::get<TcpListener>(bound_).fds()) polled.push_back({fd, POLLIN, 0});
  }
  while (true) {
    const int ready =
        poll(polled.data(), polled.size(), spell_ || !waiting_.empty() ? kTickMs : -1);
    if (ready < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) AcceptAll(polled[i].fd);
    }
    if (spell_) LookAtSpell();
    HandOverWhoseTurnItIs();
  }
}

void Acceptor::AcceptAll(int listening) {
  while (AcceptOne(listening)) {
  }
}

bool Acceptor::AcceptOne(int listening) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  UniqueFd connection(accept4(listening, reinterpret_cast<sockaddr*>(&address), &bytes,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) {
    Take(std::move(connection), address);
    return true;
  }
  const int error = errno;
  if (error == EAGAIN) return false;
  // Anything else is of the connection that would have been next (accept(2)).
  if (!OutOfResources(error)) return true;
  NoteRefused(Refusal::kDescriptors, std::strerror(error));
  return RefuseByReserve(listening);
}

// Closes the next connection instead of leaving it to wait: its client can go elsewhere.
bool Acceptor::RefuseByReserve(int listening) {
  if (!reserve_.valid()) reserve_ = OpenReserve();
  if (!reserve_.valid()) {
    absl::SleepFor(absl::Milliseconds(kTickMs));
    return false;
  }
  reserve_ = UniqueFd();
  // Another thread may have taken the descriptor meanwhile; then the next tick tries again.
  const bool accepted =
      UniqueFd(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)).valid();
  const bool none = !accepted && errno == EAGAIN;
  reserve_ = OpenReserve();
  if (!accepted && !none) absl::SleepFor(absl::Milliseconds(kTickMs));
  return accepted;
}

void Acceptor::Take(UniqueFd connection, const sockaddr_storage& address) {
  guard::NewConnection opened{.fd = connection.get(), .tls = tls_, .health_only = health_only_};
  UnixPeer unix_peer;
  if (unix_) {
    ucred peer = {};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return;
    unix_peer = {.uid = peer.uid, .pid = peer.pid};
    opened.peer = absl::StrCat("uid=", peer.uid);
    opened.name = absl::StrCat("fd:", connection.get());
  } else {
    PeerAddress peer = Describe(address);
    opened.peer = std::move(peer.host);
    opened.name = std::move(peer.name);
  }
  absl::Time turn;
  if (!Admit(opened, turn)) return;
  if (unix_) {
    absl::MutexLock lock(&mutex_);
    peers_[connection.get()] = unix_peer;
  }
  if (turn <= absl::Now()) return HandOver(std::move(connection));
  waiting_.emplace(turn, std::move(connection));
}

void Acceptor::HandOverWhoseTurnItIs() {
  while (!waiting_.empty() && waiting_.begin()->first <= absl::Now()) {
    UniqueFd connection = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    HandOver(std::move(connection));
  }
}

bool Acceptor::Admit(const guard::NewConnection& connection, absl::Time& turn) {
  switch (const Refusal refusal = connections_.Open(connection, turn)) {
    case Refusal::kNone:
      if (spell_) EndSpell();
      return true;
    case Refusal::kPeer: {
      const absl::Time now = absl::Now();
      if (now < next_peer_line_) {
        ++peer_lines_left_out_;
        return false;
      }
      next_peer_line_ = now + kLineEvery;
      log_.Warning("connection_refused", {{"address", address_},
                                          {"peer", connection.peer},
                                          {"limit", connections_.limits().max_per_peer},
                                          {"left_out", std::exchange(peer_lines_left_out_, 0)}});
      return false;
    }
    default:
      NoteRefused(refusal, absl::StrCat(connections_.limits().max, " connections are open"));
      return false;
  }
}

void Acceptor::HandOver(UniqueFd connection) {
  if (unix_) return grpc::AddInsecureChannelFromFd(server_, connection.release());
  guard::Connections::HandingOver handing(connection.get());
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = connection.release();
  external_->HandleNewConnection(&parameters);
}

void Acceptor::NoteRefused(Refusal reason, std::string_view error) {
  if (reason == Refusal::kDescriptors) connections_.CountRefused(reason);
  if (!spell_) {
    const absl::Time now = absl::Now();
    spell_ = Spell{.since = now, .reason = reason, .logged = now >= next_spell_line_};
    if (spell_->logged) {
      next_spell_line_ = now + kLineEvery;
      log_.Warning("accept_failed", {{"address", address_}, {"error", error}});
    }
  }
  ++spell_->refused;
}

void Acceptor::LookAtSpell() {
  const bool possible =
      spell_->reason == Refusal::kAll ? !connections_.full() : OpenReserve().valid();
  if (possible) return EndSpell();
  if (absl::Now() - spell_->since >= kTolerance) accepting_.store(false);
}

void Acceptor::EndSpell() {
  if (spell_->logged || !accepting()) {
    log_.Info("accepts_again", {{"address", address_},
                                {"refused", spell_->refused},
                                {"seconds", absl::ToDoubleSeconds(absl::Now() - spell_->since)}});
  }
  spell_.reset();
  accepting_.store(true);
}

std::optional<UnixPeer> Acceptor::Find(std::string_view peer) const {
  if (!unix_) return std::nullopt;
  absl::string_view number = Text(peer);
  int fd = 0;
  if (!absl::ConsumePrefix(&number, "fd:") || !absl::SimpleAtoi(number, &fd)) return std::nullopt;
  absl::MutexLock lock(&mutex_);
  const auto found = peers_.find(fd);
  if (found == peers_.end()) return std::nullopt;
  return found->second;
}

}  // namespace gemmd::server
