// The one place where Status becomes a gRPC status.

#ifndef GEMMD_SERVER_SERVICE_WIRE_STATUS_H_
#define GEMMD_SERVER_SERVICE_WIRE_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace gemmd::server {

// OUT_OF_RANGE and the like keep their code; the message is cut at 4 KiB, since it travels in a
// header.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_WIRE_STATUS_H_
