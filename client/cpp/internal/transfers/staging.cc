#include "client/cpp/internal/transfers/staging.h"

#include <utility>

#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/connect/session_core.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {

absl::StatusOr<StagingMemory> MakeStaging(const SessionCore& session, const std::string& device,
                                          int64_t size_bytes, absl::string_view label,
                                          const CallOptions& options) {
  v1::CreateBufferRequest request;
  request.set_size_bytes(size_bytes);
  request.set_device(device);
  request.set_memory_kind(v1::MEMORY_KIND_HOST_SHARED);
  request.set_label(std::string(label));
  GEMMD_ASSIGN_OR_RETURN(const v1::Buffer info, session.Ask<v1::Buffer>(request, options));
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
