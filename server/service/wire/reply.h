// The reply to Execute and RunPlan, as the bytes of a v1::ExecuteResponse: what a program read is
// sent from where it lies, without a copy into a message and another one out of it.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "gemmd/v1/types.pb.h"
#include "server/engine/sessions/replay.h"

namespace gemmd::server {

// Of an outcome that is OK; holds it until it is sent.
grpc::ByteBuffer MakeReply(const std::shared_ptr<const Outcome>& outcome, bool replayed,
                           v1::ReportLevel level);

}  // namespace gemmd::server
