// gRPC's outcome of a call as absl::Status, and what may be said about whether it happened.

#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace gemmd::client {

// Keeps code and message; takes reason and request id out of the call's trailing metadata. The call
// must be over: before that there is no trailing metadata and gRPC aborts.
absl::Status FromGrpc(const grpc::Status& status, const grpc::ClientContext& context);

enum class Break {
  kNone,    // an answer: it succeeded, or the daemon refused it
  kUnsent,  // no connection stood, nothing has reached the daemon
  kTorn,    // the connection went away under the call: it may or may not have happened
};
Break BreakOf(const absl::Status& status);

}  // namespace gemmd::client
