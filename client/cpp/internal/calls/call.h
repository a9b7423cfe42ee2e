// One unary call with its deadline, metadata and retries. The only loop that tries a unary call
// again; what may be is in options.h, and RPC by RPC in the protos (idempotency_level).

#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/options.h"
#include "status/propagate.h"

namespace gemmd::client {

class ClientCore;

enum class Again {
  kAfterBreak,  // doing it twice is doing it once
  kUnsentOnly,  // a break leaves open whether it happened; only what never left is tried again
};

// Whether a call that ended so may be tried again.
bool MayRetry(const absl::Status& status, Again again);

// Deadline, trace context and token of a call, on a fresh context. Every call goes through here.
void Prepare(const ClientCore& core, grpc::ClientContext& context, const CallOptions& options,
             absl::Time deadline);

// `attempt` makes the call on the context it gets; called again for each try.
absl::Status Call(const ClientCore& core, const CallOptions& options, Again again,
                  absl::FunctionRef<grpc::Status(grpc::ClientContext&)> attempt);

// The unary RPC that takes `request`: its type says which, and whether it may be done twice.
absl::Status Send(const ClientCore& core, const CallOptions& options, grpc::Channel& channel,
                  const google::protobuf::Message& request, google::protobuf::Message& response);

// The same, tried once.
grpc::Status SendOnce(grpc::Channel& channel, grpc::ClientContext& context,
                      const google::protobuf::Message& request,
                      google::protobuf::Message& response);

template <typename Response>
absl::StatusOr<Response> Ask(const ClientCore& core, const CallOptions& options,
                             grpc::Channel& channel, const google::protobuf::Message& request) {
  Response response;
  GEMMD_RETURN_IF_ERROR(Send(core, options, channel, request, response));
  return response;
}

}  // namespace gemmd::client
