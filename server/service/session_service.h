// SessionService on the wire: open, keep alive, close, hold, list.

#ifndef GEMMD_SERVER_SERVICE_SESSION_SERVICE_H_
#define GEMMD_SERVER_SERVICE_SESSION_SERVICE_H_

#include "gemmd/v1/session_service.grpc.pb.h"
#include "server/service/call.h"
#include "server/service/streams.h"

namespace gemmd::server {

class SessionService final : public v1::SessionService::CallbackService {
 public:
  SessionService(ServiceContext& context, StreamRegistry& streams);

  grpc::ServerUnaryReactor* OpenSession(grpc::CallbackServerContext* context,
                                        const v1::OpenSessionRequest* request,
                                        v1::OpenSessionResponse* response) override;
  grpc::ServerUnaryReactor* KeepAlive(grpc::CallbackServerContext* context,
                                      const v1::KeepAliveRequest* request,
                                      v1::KeepAliveResponse* response) override;
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionResponse* response) override;
  grpc::ServerWriteReactor<v1::HoldEvent>* Hold(grpc::CallbackServerContext* context,
                                                const v1::HoldRequest* request) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const v1::ListSessionsRequest* request,
                                         v1::ListSessionsResponse* response) override;

 private:
  StreamRegistry& streams_;
  Method open_, keep_alive_, close_, hold_, list_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_SESSION_SERVICE_H_
