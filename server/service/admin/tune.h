// AdminService.Tune: kernels are measured, and one message says so for each shape.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "gemmd/v1/admin_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

// A drain ends it, UNAVAILABLE, as a cancellation does: what was measured by then is kept.
grpc::ServerWriteReactor<v1::TuneProgress>* ServeTune(Method& method,
                                                      grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer& request);

}  // namespace gemmd::server
