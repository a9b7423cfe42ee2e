// What BufferService's methods have in common.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "server/engine/server_state.h"
#include "server/service/wire/call.h"

namespace gemmd::server {

// The buffer that a request names, and its handle.
absl::StatusOr<BufferRef> ResolveBuffer(Session& session, const std::string& id, Handle& handle);

// Everything but the handle.
void DescribeBuffer(ServerState& state, const BufferRef& ref, v1::Buffer* proto);
void FillBuffer(ServerState& state, const Handle& handle, const BufferRef& ref, v1::Buffer* proto);

// Makes the buffer, gives it a handle in the session, and describes it.
absl::Status MakeBuffer(Call& call, Session& session, Device& device, BufferSpec spec,
                        const BufferImport& import, v1::Buffer* response);

// Bytes that a stream moved "in" or "out", for metrics, timeline and the call's span.
void NoteTransfer(Call& call, const Buffer& buffer, const char* direction, absl::Time begin,
                  absl::Duration duration, int64_t bytes);

}  // namespace gemmd::server
