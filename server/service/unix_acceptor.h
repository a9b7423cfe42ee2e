// UnixAcceptor: takes the connections of a Unix socket and hands them to a gRPC server, because
// gRPC's own listener does not tell who is at the other end. gRPC calls such a connection "fd:17"
// after its descriptor, which stays open as long as a call of it lives: by that name a call finds
// its peer.

#ifndef GEMMD_SERVER_SERVICE_UNIX_ACCEPTOR_H_
#define GEMMD_SERVER_SERVICE_UNIX_ACCEPTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/log.h"
#include "server/engine/unix_listener.h"

namespace grpc {
class Server;
}

namespace gemmd::server {

struct UnixPeer {
  uint32_t uid = 0;  // as the kernel saw it when the peer connected
  int32_t pid = 0;
};

// Thread-safe.
class UnixAcceptor {
 public:
  // Errors as UnixListener::Bind's. Nobody is accepted yet.
  static absl::StatusOr<std::unique_ptr<UnixAcceptor>> Bind(const UnixListenerOptions& options,
                                                            Log& log);
  // Stops accepting; connections that were handed over stay the server's.
  ~UnixAcceptor();

  void Start(grpc::Server& server);
  void Stop();

  const std::string& address() const { return listener_.address(); }
  // Whose connection gRPC calls this; nothing for a name that is none of ours.
  std::optional<UnixPeer> Find(std::string_view peer) const;

 private:
  UnixAcceptor(UnixListener listener, UniqueFd wake, Log& log);
  void Run(grpc::Server& server);
  void AcceptAll(grpc::Server& server);

  UnixListener listener_;
  const UniqueFd wake_;  // eventfd: the end
  Log& log_;
  std::thread thread_;
  mutable absl::Mutex mutex_;
  // By descriptor: an entry is overwritten when its number comes again.
  absl::flat_hash_map<int, UnixPeer> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_UNIX_ACCEPTOR_H_
