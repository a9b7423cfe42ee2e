// Session's calls about buffers.

#include <google/protobuf/util/time_util.h>

#include <utility>

#include "client/cpp/internal/calls/paged.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/connect/session_core.h"
#include "client/cpp/internal/connect/share_socket.h"
#include "client/cpp/session.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

v1::ImportBufferRequest ImportRequest(const std::string& token, const BufferSpec& spec) {
  v1::ImportBufferRequest request;
  request.set_token(token);
  request.set_size_bytes(spec.size_bytes);
  request.set_dtype(static_cast<v1::DType>(spec.dtype));
  for (int64_t extent : spec.shape) request.add_shape(extent);
  request.set_label(spec.label);
  return request;
}

absl::Status SendUnpublish(const SessionCore& session, absl::string_view name, bool unless_held,
                           const CallOptions& options) {
  v1::UnpublishBufferRequest request;
  request.set_name(std::string(name));
  request.set_unless_held(unless_held);
  return session.Ask<v1::UnpublishBufferResponse>(request, options).status();
}

}  // namespace

absl::StatusOr<Buffer> Session::CreateBuffer(const BufferSpec& spec, const CallOptions& options) {
  v1::CreateBufferRequest request;
  request.set_size_bytes(spec.size_bytes);
  request.set_device(spec.device);
  request.set_memory_kind(static_cast<v1::MemoryKind>(spec.memory_kind));
  request.set_dtype(static_cast<v1::DType>(spec.dtype));
  for (int64_t extent : spec.shape) request.add_shape(extent);
  request.set_label(spec.label);
  const auto create = [&] { return core_->Ask<v1::Buffer>(request, options); };
  const bool dropping = !core_->reaper().Idle();  // before: the deletion may overtake the answer
  absl::StatusOr<v1::Buffer> info = create();
  // What was dropped, or what the library shares for its own ends, may be what is in the way.
  if (absl::IsResourceExhausted(info.status()) && (core_->inline_memory().Drop() || dropping)) {
    core_->reaper().Flush();
    info = create();
  }
  if (!info.ok()) return info.status();
  return MakeBuffer(core_, *info, /*owned=*/true);
}

absl::StatusOr<Buffer> Session::ImportBuffer(SharedMemory memory, const BufferSpec& spec,
                                             const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const std::string socket, core_->client().ShareSocket());
  GEMMD_ASSIGN_OR_RETURN(const std::string token, SendDescriptor(socket, memory.fd()));
  v1::ImportBufferRequest request = ImportRequest(token, spec);
  request.set_memory_kind(v1::MEMORY_KIND_HOST_SHARED);
  if (spec.size_bytes <= 0) request.set_size_bytes(memory.size_bytes());
  GEMMD_ASSIGN_OR_RETURN(const v1::Buffer info, core_->Ask<v1::Buffer>(request, options));
  return MakeBuffer(core_, info, /*owned=*/true, std::move(memory));
}

absl::StatusOr<Buffer> Session::ImportDevice(const DeviceMemory& memory, const BufferSpec& spec,
                                             const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const std::string socket, core_->client().ShareSocket());
  GEMMD_ASSIGN_OR_RETURN(const std::string token, OfferDeviceMemory(socket, memory));
  v1::ImportBufferRequest request = ImportRequest(token, spec);
  request.set_memory_kind(v1::MEMORY_KIND_DEVICE_IMPORTED);
  GEMMD_ASSIGN_OR_RETURN(const v1::Buffer info, core_->Ask<v1::Buffer>(request, options));
  return MakeBuffer(core_, info, /*owned=*/true);
}

absl::StatusOr<v1::Buffer> Session::GetBuffer(const Handle& id, const CallOptions& options) {
  v1::GetBufferRequest request;
  request.set_buffer_id(std::string(id.bytes()));
  return core_->Ask<v1::Buffer>(request, options);
}

absl::StatusOr<Buffer> Session::AttachBuffer(const Handle& id, const CallOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(const v1::Buffer info, GetBuffer(id, options));
  return MakeBuffer(core_, info, /*owned=*/false);
}

absl::Status Session::Publish(Buffer& buffer, absl::string_view name, const CallOptions& options) {
  return Publish(buffer, name, PublishOptions(), options);
}

absl::Status Session::Publish(Buffer& buffer, absl::string_view name, const PublishOptions& publish,
                              const CallOptions& options) {
  v1::PublishBufferRequest request;
  request.set_buffer_id(std::string(buffer.id().bytes()));
  request.set_name(std::string(name));
  request.set_content_hash(publish.content_hash);
  if (publish.ttl != absl::ZeroDuration()) {
    *request.mutable_ttl() = google::protobuf::util::TimeUtil::NanosecondsToDuration(
        absl::ToInt64Nanoseconds(publish.ttl));
  }
  const absl::Status status = core_->Ask<v1::PublishBufferResponse>(request, options).status();
  if (status.ok()) SetReadOnly(buffer);
  return status;
}

absl::StatusOr<Buffer> Session::Find(absl::string_view name, const CallOptions& options) {
  v1::FindBufferRequest request;
  request.set_name(std::string(name));
  GEMMD_ASSIGN_OR_RETURN(const v1::Buffer info, core_->Ask<v1::Buffer>(request, options));
  return MakeBuffer(core_, info, /*owned=*/true);
}

absl::Status Session::Unpublish(absl::string_view name, const CallOptions& options) {
  return SendUnpublish(*core_, name, /*unless_held=*/false, options);
}

absl::Status Session::UnpublishUnlessHeld(absl::string_view name, const CallOptions& options) {
  return SendUnpublish(*core_, name, /*unless_held=*/true, options);
}

absl::StatusOr<std::vector<v1::Buffer>> Session::ListBuffers(const CallOptions& options) {
  return AllPages(*core_, options, v1::ListBuffersRequest(),
                  &v1::ListBuffersResponse::mutable_buffers);
}

absl::StatusOr<int64_t> Session::DeleteBuffers(absl::Span<const Handle> ids,
                                               const CallOptions& options) {
  v1::DeleteBuffersRequest request;
  for (const Handle& id : ids) request.add_buffer_ids(std::string(id.bytes()));
  GEMMD_ASSIGN_OR_RETURN(const v1::DeleteBuffersResponse response,
                         core_->Ask<v1::DeleteBuffersResponse>(request, options));
  return response.freed_bytes();
}

}  // namespace gemmd::client
