// Authenticator: who calls at one listener, from what gRPC knows of the connection and what the
// call carries. Health checks do not come here.

#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/statusor.h"
#include "server/engine/server_state.h"
#include "server/engine/sessions/access.h"
#include "server/service/listen/acceptor.h"

namespace gemmd::server {

// Thread-safe.
class Authenticator {
 public:
  // `tenant` is the listener's. All outlive it.
  Authenticator(const ListenerConfig& config, Tenant& tenant, const Access& access,
                const Acceptor& acceptor);

  // UNAUTHENTICATED with a reason when the listener asks for credentials and none is good. Else the
  // acceptor knows that the connection is somebody's.
  absl::StatusOr<PrincipalRef> Authenticate(const grpc::ServerContextBase& context) const;

  // Where the call comes from: "ipv4:10.0.0.7:41234", "unix:uid=1000,pid=4242".
  std::string PeerName(const grpc::ServerContextBase& context) const;

 private:
  absl::StatusOr<PrincipalRef> Identify(const grpc::ServerContextBase& context) const;
  // Null for a user id that nobody knows.
  PrincipalRef AtUnix(const grpc::ServerContextBase& context) const;
  bool Trusted(uint32_t uid) const;

  const Credentials asked_;
  const Access& access_;
  const Acceptor& acceptor_;
  const uint32_t own_uid_;
  const PrincipalRef anyone_;      // where nothing is asked for
  const PrincipalRef local_root_;  // root and gemmd's own user at a Unix socket
};

}  // namespace gemmd::server
