#include "client/cpp/internal/transfers/staging.h"

#include <utility>

#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/connect/session_core.h"

namespace gemmd::client {

absl::StatusOr<StagingMemory> MakeStaging(const SessionCore& session, const std::string& device,
                                          int64_t size_bytes, absl::string_view label,
                                          const CallOptions& options) {
  v1::CreateBufferRequest request;
  request.set_session_id(session.id());
  request.set_size_bytes(size_bytes);
  request.set_device(device);
  request.set_memory_kind(v1::MEMORY_KIND_HOST_SHARED);
  request.set_label(std::string(label));
  v1::Buffer info;
  const absl::Status created =
      Call(session.client(), options, Again::kUnsentOnly, [&](grpc::ClientContext& context) {
        return session.connection().buffers.CreateBuffer(&context, request, &info);
      });
  if (!created.ok()) return created;
  const absl::StatusOr<Handle> id = Handle::FromBytes(info.buffer_id());
  if (!id.ok()) return absl::InternalError(id.status().message());
  absl::StatusOr<SharedMemory> memory =
      FetchMemory(session, *id, size_bytes, /*writable=*/true, options);
  if (!memory.ok()) {
    session.reaper().DropBuffer(*id);
    return memory.status();
  }
  return StagingMemory{*id, *std::move(memory)};
}

}  // namespace gemmd::client
