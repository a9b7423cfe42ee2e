// DeviceService on the wire: what the server is and what it owns.

#ifndef GEMMD_SERVER_SERVICE_DEVICE_SERVICE_H_
#define GEMMD_SERVER_SERVICE_DEVICE_SERVICE_H_

#include "gemmd/v1/device_service.grpc.pb.h"
#include "server/service/call.h"

namespace gemmd::server {

class DeviceService final : public v1::DeviceService::CallbackService {
 public:
  explicit DeviceService(ServiceContext& context);

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* ListKernels(grpc::CallbackServerContext* context,
                                        const v1::ListKernelsRequest* request,
                                        v1::ListKernelsResponse* response) override;

 private:
  Method info_, devices_, kernels_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_DEVICE_SERVICE_H_
