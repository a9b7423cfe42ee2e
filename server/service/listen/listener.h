// Listener: one address, one gRPC server. Each listener has services of its own, because how a
// caller is known depends on where the call arrived.

#pragma once

#include <grpcpp/resource_quota.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/engine/server_state.h"
#include "server/guard/connections.h"
#include "server/service/wire/call.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

// What the listeners of a server share.
struct ListenerContext {
  ServerState& state;
  LiveCalls& live;
  StreamRegistry& streams;
  guard::Connections& connections;
  // Of what gRPC reads, for all of them together.
  const grpc::ResourceQuota& quota;
};

class Listener {
 public:
  // UNAVAILABLE when the address cannot be bound. A stale Unix socket of a server that is gone is
  // replaced; a live one is not.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(const ListenerConfig& config,
                                                         const ListenerContext& context);
  ~Listener();

  // As clients reach it, the port filled in: "127.0.0.1:41571", "unix:/run/gemmd.sock".
  const std::string& address() const { return address_; }

  // Health of the whole server, which is that of its devices together, and of each device; what
  // Check and Watch answer. Call it again when a device is fenced.
  void SetServing(bool serving);
  // False while it cannot take connections: out of descriptors, or as many as may be are open.
  bool accepting() const;
  // Follows the files of TLS, shows when the certificate ends, and logs once that it has. To be
  // called every now and then, by the same thread.
  void Watch();
  // Stops listening; calls still there at `deadline` are cancelled.
  void Shutdown(absl::Time deadline);

 private:
  struct Services;
  Listener() = default;
  std::unique_ptr<Services> services_;
  std::string address_;
  std::string config_address_;  // as the config has it: a metric's label
  bool certificate_expired_ = false;
};

// Turns on reflection and channelz, where no credentials are asked for. Once, before the first
// Listener.
void EnableListenerPlugins();

}  // namespace gemmd::server
