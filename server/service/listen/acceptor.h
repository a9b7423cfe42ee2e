// Acceptor: takes the connections of a listener, TCP or Unix, and hands them to its gRPC server.
// gRPC's own listener of TCP never accepts again once it was out of descriptors (1.51,
// CVE-2023-4785), bounds no peer, and that of Unix sockets does not tell who is at the other end.
//
// Out of descriptors it closes what comes, at once, by a descriptor that it keeps in reserve, so
// that nobody waits in the backlog, and says so once.

#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/config.h"
#include "server/engine/observe/log.h"
#include "server/engine/share/tcp_listener.h"
#include "server/engine/share/unix_listener.h"
#include "server/guard/connections.h"

namespace gemmd::server {

struct UnixPeer {
  uint32_t uid = 0;  // as the kernel saw it when the peer connected
  int32_t pid = 0;
};

// Thread-safe.
class Acceptor {
 public:
  // Errors as UnixListener::Bind's and TcpListener::Bind's. Nobody is accepted yet.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Bind(const ListenerConfig& config,
                                                        guard::Connections& connections, Log& log);
  // Stops accepting; connections that were handed over stay the server's.
  ~Acceptor();

  // Before the server is built. `credentials` are TCP's.
  void Register(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  void Start(grpc::Server& server);
  void Stop();

  const std::string& address() const { return address_; }
  // False once it could not take connections for half a second, until it can.
  bool accepting() const { return accepting_.load(std::memory_order_relaxed); }

  // A call on the connection that gRPC calls this showed what the listener asks for.
  void NoteAdmitted(std::string_view peer) const { connections_.NoteAdmitted(peer); }
  bool AwaitsAdmission() const { return connections_.AwaitsAdmission(); }
  // Whose connection gRPC calls this; nothing for a name that is none of a Unix socket's.
  std::optional<UnixPeer> Find(std::string_view peer) const;

 private:
  using Bound = std::variant<UnixListener, TcpListener>;
  // From the first connection that could not be taken to the next that could.
  struct Spell {
    absl::Time since;
    guard::Refusal reason;
    bool logged;
    int64_t refused = 0;
  };

  Acceptor(Bound bound, const ListenerConfig& config, UniqueFd wake,
           guard::Connections& connections, Log& log);
  void Run();
  void AcceptAll(int listening);
  // False when there is nothing more to accept now.
  bool AcceptOne(int listening);
  void Take(UniqueFd connection, const sockaddr_storage& address);
  bool Admit(const guard::NewConnection& connection, absl::Time& turn);
  void HandOver(UniqueFd connection);
  void HandOverWhoseTurnItIs();
  bool RefuseByReserve(int listening);
  void NoteRefused(guard::Refusal reason, std::string_view error);
  void LookAtSpell();
  void EndSpell();

  const Bound bound_;
  const std::string address_;
  const bool unix_;
  const bool tls_;
  const bool health_only_;
  const UniqueFd wake_;  // eventfd: the end
  guard::Connections& connections_;
  Log& log_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> external_;  // TCP's
  grpc::Server* server_ = nullptr;
  std::thread thread_;
  std::atomic<bool> accepting_{true};
  // Of the thread.
  UniqueFd reserve_;
  std::multimap<absl::Time, UniqueFd> waiting_;  // accepted, by when gRPC gets them
  std::optional<Spell> spell_;
  absl::Time next_spell_line_ = absl::InfinitePast();
  absl::Time next_peer_line_ = absl::InfinitePast();
  int64_t peer_lines_left_out_ = 0;

  mutable absl::Mutex mutex_;
  // By descriptor: an entry is overwritten when its number comes again.
  absl::flat_hash_map<int, UnixPeer> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
