// AdminService on the wire: what an operator does to a running daemon.

#ifndef GEMMD_SERVER_SERVICE_ADMIN_SERVICE_H_
#define GEMMD_SERVER_SERVICE_ADMIN_SERVICE_H_

#include "gemmd/v1/admin_service.grpc.pb.h"
#include "server/service/call.h"
#include "server/service/streams.h"

namespace gemmd::server {

class AdminService final : public v1::AdminService::CallbackService {
 public:
  AdminService(ServiceContext& context, StreamRegistry& streams);

  grpc::ServerUnaryReactor* GetLog(grpc::CallbackServerContext* context,
                                   const v1::GetLogRequest* request,
                                   v1::LogSettings* response) override;
  grpc::ServerUnaryReactor* SetLog(grpc::CallbackServerContext* context,
                                   const v1::SetLogRequest* request,
                                   v1::LogSettings* response) override;
  grpc::ServerUnaryReactor* EndSession(grpc::CallbackServerContext* context,
                                       const v1::EndSessionRequest* request,
                                       v1::EndSessionResponse* response) override;
  grpc::ServerWriteReactor<v1::TraceChunk>* Trace(grpc::CallbackServerContext* context,
                                                  const v1::TraceRequest* request) override;

 private:
  StreamRegistry& streams_;
  Method get_log_, set_log_, end_session_, trace_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ADMIN_SERVICE_H_
