// AdminService.Trace: the server's timeline as a stream of messages, for a while.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "gemmd/v1/admin_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/streams.h"

namespace gemmd::server {

// Sends what happens during request.duration: a first message with the time it begins, then events
// every few milliseconds. A reader that is slow loses events, which are counted; one that stops
// reading is cut 10 s after the end. A drain ends it at once, UNAVAILABLE, with what was recorded.
grpc::ServerWriteReactor<v1::TraceChunk>* ServeTrace(Method& method,
                                                     grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer& request);

}  // namespace gemmd::server
