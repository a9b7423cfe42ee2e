// SessionService.Hold: ties a session to a stream, and carries news to its client.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "gemmd/v1/session_service.grpc.pb.h"
#include "server/service/wire/call.h"

namespace gemmd::server {

grpc::ServerWriteReactor<v1::HoldEvent>* ServeHold(Method& method,
                                                   grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer& request);

}  // namespace gemmd::server
