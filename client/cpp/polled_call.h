// A blocking unary call whose caller looks for the answer itself for a while before it sleeps.
//
// A thread that sleeps is woken tens of microseconds after its answer has come, the later the
// longer it slept: on a virtual machine as much as a small matmul takes. So Execute and Plan::Run
// look first, for ClientOptions::busy_poll.

#ifndef GEMMD_CLIENT_CPP_POLLED_CALL_H_
#define GEMMD_CLIENT_CPP_POLLED_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "absl/time/time.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {

// `busy_poll`: how long it looks without sleeping. Zero: as any blocking call.
grpc::Status PolledUnary(const std::shared_ptr<grpc::Channel>& channel, const char* method,
                         grpc::ClientContext& context, const grpc::ByteBuffer& request,
                         v1::ExecuteResponse& response, absl::Duration busy_poll);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CPP_POLLED_CALL_H_
