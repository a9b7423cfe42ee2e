// AdminService on the wire: what an operator does to a running daemon.

#ifndef GEMMD_SERVER_SERVICE_ADMIN_ADMIN_SERVICE_H_
#define GEMMD_SERVER_SERVICE_ADMIN_ADMIN_SERVICE_H_

#include "gemmd/v1/admin_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/rpcs.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

class AdminService {
 public:
  AdminService(ServiceContext& context, StreamRegistry& streams);
  grpc::Service& wire() { return rpcs_; }

 private:
  absl::Status GetLog(Call& call, const v1::GetLogRequest& request, v1::LogSettings* response);
  absl::Status SetLog(Call& call, const v1::SetLogRequest& request, v1::LogSettings* response);
  absl::Status ExportTuning(Call& call, const v1::ExportTuningRequest& request,
                            v1::ExportTuningResponse* response);
  absl::Status ImportTuning(Call& call, const v1::ImportTuningRequest& request,
                            v1::ImportTuningResponse* response);
  absl::Status EndSession(Call& call, const v1::EndSessionRequest& request,
                          v1::EndSessionResponse* response);

  StreamRegistry& streams_;
  Method get_log_, set_log_, end_session_, trace_, tune_, export_tuning_, import_tuning_;
  Rpcs<v1::AdminService> rpcs_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ADMIN_ADMIN_SERVICE_H_
