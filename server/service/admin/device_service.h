// DeviceService on the wire: what the server is and what it owns.

#ifndef GEMMD_SERVER_SERVICE_ADMIN_DEVICE_SERVICE_H_
#define GEMMD_SERVER_SERVICE_ADMIN_DEVICE_SERVICE_H_

#include "gemmd/v1/device_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/rpcs.h"

namespace gemmd::server {

class DeviceService {
 public:
  explicit DeviceService(ServiceContext& context);
  grpc::Service& wire() { return rpcs_; }

 private:
  absl::Status GetServerInfo(Call& call, const v1::GetServerInfoRequest& request,
                             v1::ServerInfo* response);
  absl::Status ListDevices(Call& call, const v1::ListDevicesRequest& request,
                           v1::ListDevicesResponse* response);
  absl::Status ListKernels(Call& call, const v1::ListKernelsRequest& request,
                           v1::ListKernelsResponse* response);

  Method info_, devices_, kernels_;
  Rpcs<v1::DeviceService> rpcs_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ADMIN_DEVICE_SERVICE_H_
