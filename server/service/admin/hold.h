// SessionService.Hold: ties a session to a stream, and carries news to its client.

#ifndef GEMMD_SERVER_SERVICE_ADMIN_HOLD_H_
#define GEMMD_SERVER_SERVICE_ADMIN_HOLD_H_

#include <grpcpp/support/byte_buffer.h>

#include "gemmd/v1/session_service.grpc.pb.h"
#include "server/service/wire/call.h"

namespace gemmd::server {

grpc::ServerWriteReactor<v1::HoldEvent>* ServeHold(Method& method,
                                                   grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer& request);

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_ADMIN_HOLD_H_
