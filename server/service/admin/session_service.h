// SessionService on the wire: open, keep alive, close, hold, list.

#ifndef GEMMD_SERVER_SERVICE_ADMIN_SESSION_SERVICE_H_
#define GEMMD_SERVER_SERVICE_ADMIN_SESSION_SERVICE_H_

#include <memory>

#include "gemmd/v1/session_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/rpcs.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

class SessionService {
 public:
  SessionService(ServiceContext& context, StreamRegistry& streams);
  grpc::Service& wire() { return rpcs_; }

 private:
  using CloseSessionCall = std::shared_ptr<PendingCall<v1::CloseSessionResponse>>;

  absl::Status OpenSession(Call& call, const v1::OpenSessionRequest& request,
                           v1::OpenSessionResponse* response);
  absl::Status KeepAlive(Call& call, const v1::KeepAliveRequest& request,
                         v1::KeepAliveResponse* response);
  void CloseSession(CloseSessionCall call, const v1::CloseSessionRequest& request);
  absl::Status ListSessions(Call& call, const v1::ListSessionsRequest& request,
                            v1::ListSessionsResponse* response);

  StreamRegistry& streams_;
  Method open_, keep_alive_, close_, hold_, list_;
  Rpcs<v1::SessionService> rpcs_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ADMIN_SESSION_SERVICE_H_
