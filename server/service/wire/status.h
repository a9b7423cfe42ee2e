// The one place where Status becomes a gRPC status.

#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace gemmd::server {

// OUT_OF_RANGE and the like keep their code; the message is cut at 4 KiB, since it travels in a
// header.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace gemmd::server
