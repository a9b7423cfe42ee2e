// The services of a listener (service/wire/rpcs.h says how one is made). Each lives as long as
// `context`.

#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/service/wire/call.h"

namespace gemmd::server {

std::unique_ptr<grpc::Service> MakeSessionService(ServiceContext& context);
std::unique_ptr<grpc::Service> MakeBufferService(ServiceContext& context);
std::unique_ptr<grpc::Service> MakeComputeService(ServiceContext& context);
std::unique_ptr<grpc::Service> MakeArmedService(ServiceContext& context);
std::unique_ptr<grpc::Service> MakeDeviceService(ServiceContext& context);
std::unique_ptr<grpc::Service> MakeAdminService(ServiceContext& context);

}  // namespace gemmd::server
