#include "server/service/buffer_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/engine/label.h"
#include "server/engine/reason.h"
#include "server/service/convert.h"
#include "server/service/download.h"
#include "server/service/page.h"
#include "server/service/upload.h"

namespace gemmd::server {
namespace {

// Everything but the handle.
void Describe(ServerState& state, const BufferRef& ref, v1::Buffer* proto) {
  const Buffer& buffer = *ref.buffer;
  const BufferSpec& spec = buffer.spec();
  proto->set_size_bytes(spec.size_bytes);
  proto->set_device(buffer.device().name());
  proto->set_memory_kind(spec.kind == kernels::MemoryKind::kHostShared ? v1::MEMORY_KIND_HOST_SHARED
                                                                       : v1::MEMORY_KIND_DEVICE);
  if (spec.dtype) proto->set_dtype(ToProto(*spec.dtype));
  for (int i = 0; i < spec.shape.rank; ++i) proto->add_shape(spec.shape[i]);
  proto->set_label(spec.label);
  proto->set_published_name(state.published().NameOf(buffer));
  proto->set_read_only(ref.read_only());
  const Buffer::UploadState upload = buffer.upload();
  proto->set_committed_bytes(upload.committed_bytes);
  proto->set_upload_offset_bytes(upload.offset_bytes);
  *proto->mutable_create_time() = ToProto(buffer.created());
}

void FillBuffer(ServerState& state, const Handle& handle, const BufferRef& ref, v1::Buffer* proto) {
  proto->set_buffer_id(ToBytes(handle));
  Describe(state, ref, proto);
}

absl::StatusOr<BufferRef> Find(Session& session, const std::string& id, Handle& handle) {
  auto converted = ConvertHandle(id, "buffer_id");
  if (!converted.ok()) return converted.status();
  handle = *converted;
  return session.FindBuffer(handle);
}

// Makes the buffer, gives it a handle in the session, and describes it.
absl::Status Make(Call& call, Session& session, Device& device, BufferSpec spec, int import_fd,
                  v1::Buffer* response) {
  auto buffer =
      Buffer::Create(call.tenant(), device, std::move(spec), call.state().clock().Now(), import_fd);
  if (!buffer.ok()) return buffer.status();
  const BufferRef ref{.buffer = *std::move(buffer)};
  auto handle = session.AddBuffer(ref);
  if (!handle.ok()) return handle.status();
  FillBuffer(call.state(), *handle, ref, response);
  return absl::OkStatus();
}

// What every method here begins with.
absl::StatusOr<SessionUse> Use(Call& call, const std::string& session_id) {
  return call.state().sessions().Use(call.tenant(), session_id);
}

}  // namespace

BufferService::BufferService(ServiceContext& context)
    : create_(context, "CreateBuffer"),
      get_(context, "GetBuffer"),
      list_(context, "ListBuffers"),
      delete_(context, "DeleteBuffers"),
      publish_(context, "PublishBuffer"),
      find_(context, "FindBuffer"),
      unpublish_(context, "UnpublishBuffer"),
      list_published_(context, "ListPublished"),
      upload_(context, "Upload"),
      download_(context, "Download"),
      export_(context, "ExportBuffer"),
      import_(context, "ImportBuffer") {}

grpc::ServerUnaryReactor* BufferService::CreateBuffer(grpc::CallbackServerContext* context,
                                                      const v1::CreateBufferRequest* request,
                                                      v1::Buffer* response) {
  return Unary(create_, context, [&](Call& call) -> absl::Status {
    if (absl::Status open = call.state().CheckOpen(); !open.ok()) return open;
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    if (absl::Status label = CheckLabel(request->label()); !label.ok()) return label;
    auto spec = ConvertSpec(request->dtype(), request->shape(), request->size_bytes());
    if (!spec.ok()) return spec.status();
    spec->label = request->label();
    if (!v1::MemoryKind_IsValid(request->memory_kind())) {
      return absl::InvalidArgumentError(
          absl::StrCat("memory_kind ", static_cast<int>(request->memory_kind()),
                       " is not known here; use DEVICE or HOST_SHARED"));
    }
    if (request->memory_kind() == v1::MEMORY_KIND_HOST_SHARED) {
      spec->kind = kernels::MemoryKind::kHostShared;
    }
    Device* device = (*use)->options().device;
    if (!request->device().empty()) {
      auto named = call.state().FindDevice(request->device());
      if (!named.ok()) return named.status();
      device = *named;
    }
    return Make(call, **use, *device, *std::move(spec), /*import_fd=*/-1, response);
  });
}

grpc::ServerUnaryReactor* BufferService::GetBuffer(grpc::CallbackServerContext* context,
                                                   const v1::GetBufferRequest* request,
                                                   v1::Buffer* response) {
  return Unary(get_, context, [&](Call& call) -> absl::Status {
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    Handle handle;
    auto ref = Find(**use, request->buffer_id(), handle);
    if (!ref.ok()) return ref.status();
    FillBuffer(call.state(), handle, *ref, response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* BufferService::ListBuffers(grpc::CallbackServerContext* context,
                                                     const v1::ListBuffersRequest* request,
                                                     v1::ListBuffersResponse* response) {
  return Unary(list_, context, [&](Call& call) -> absl::Status {
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    auto page = ConvertPage(request->page_size(), request->page_token());
    if (!page.ok()) return page.status();
    const auto buffers = (*use)->Buffers();
    const int64_t total = static_cast<int64_t>(buffers.size());
    for (int64_t i = page->skip; i < total && i < page->skip + page->size; ++i) {
      FillBuffer(call.state(), buffers[i].handle, buffers[i].ref, response->add_buffers());
    }
    response->set_next_page_token(NextToken(*page, total));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* BufferService::DeleteBuffers(grpc::CallbackServerContext* context,
                                                       const v1::DeleteBuffersRequest* request,
                                                       v1::DeleteBuffersResponse* response) {
  return Unary(delete_, context, [&](Call& call) -> absl::Status {
    constexpr int kMost = 1000;
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    if (request->buffer_ids_size() > kMost) {
      return absl::InvalidArgumentError(absl::StrCat("buffer_ids has ", request->buffer_ids_size(),
                                                     " entries, limit ", kMost,
                                                     "; delete in parts"));
    }
    std::vector<Handle> handles;
    for (const std::string& id : request->buffer_ids()) {
      auto handle = ConvertHandle(id, "buffer_ids");
      if (!handle.ok()) return handle.status();
      handles.push_back(*handle);
    }
    auto freed = (*use)->DeleteBuffers(handles);
    if (!freed.ok()) return freed.status();
    response->set_freed_bytes(*freed);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* BufferService::PublishBuffer(grpc::CallbackServerContext* context,
                                                       const v1::PublishBufferRequest* request,
                                                       v1::PublishBufferResponse*) {
  return Unary(publish_, context, [&](Call& call) -> absl::Status {
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    Handle handle;
    auto ref = Find(**use, request->buffer_id(), handle);
    if (!ref.ok()) return ref.status();
    return call.state().published().Publish(call.tenant(), request->name(), *ref);
  });
}

grpc::ServerUnaryReactor* BufferService::FindBuffer(grpc::CallbackServerContext* context,
                                                    const v1::FindBufferRequest* request,
                                                    v1::Buffer* response) {
  return Unary(find_, context, [&](Call& call) -> absl::Status {
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    auto buffer = call.state().published().Find(call.tenant(), request->name());
    if (!buffer.ok()) return buffer.status();
    const BufferRef ref{.buffer = *std::move(buffer), .found = true};
    auto handle = (*use)->AddBuffer(ref);
    if (!handle.ok()) return handle.status();
    FillBuffer(call.state(), *handle, ref, response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* BufferService::UnpublishBuffer(grpc::CallbackServerContext* context,
                                                         const v1::UnpublishBufferRequest* request,
                                                         v1::UnpublishBufferResponse*) {
  return Unary(unpublish_, context, [&](Call& call) -> absl::Status {
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    return call.state().published().Unpublish(call.tenant(), request->name());
  });
}

grpc::ServerUnaryReactor* BufferService::ListPublished(grpc::CallbackServerContext* context,
                                                       const v1::ListPublishedRequest* request,
                                                       v1::ListPublishedResponse* response) {
  return Unary(list_published_, context, [&](Call& call) -> absl::Status {
    auto page = ConvertPage(request->page_size(), request->page_token());
    if (!page.ok()) return page.status();
    const auto buffers = call.state().published().List(call.tenant());
    const int64_t total = static_cast<int64_t>(buffers.size());
    for (int64_t i = page->skip; i < total && i < page->skip + page->size; ++i) {
      Describe(call.state(), {.buffer = buffers[i], .found = true}, response->add_buffers());
    }
    response->set_next_page_token(NextToken(*page, total));
    return absl::OkStatus();
  });
}

grpc::ServerReadReactor<grpc::ByteBuffer>* BufferService::Upload(
    grpc::CallbackServerContext* context, grpc::ByteBuffer* response) {
  return new UploadStream(upload_, context, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* BufferService::Download(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new DownloadStream(download_, context, *request);
}

grpc::ServerUnaryReactor* BufferService::ExportBuffer(grpc::CallbackServerContext* context,
                                                      const v1::ExportBufferRequest* request,
                                                      v1::ExportBufferResponse* response) {
  return Unary(export_, context, [&](Call& call) -> absl::Status {
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    Handle handle;
    auto ref = Find(**use, request->buffer_id(), handle);
    if (!ref.ok()) return ref.status();
    ShareSocket* share = call.state().share();
    const int fd = ref->buffer->memory().shared_fd();
    if (share == nullptr || fd < 0) {
      return WithReason(
          absl::FailedPreconditionError(
              share == nullptr
                  ? "this server offers no shared memory (share.disabled); use Download"
                  : "the buffer is not shared memory; create it with memory_kind HOST_SHARED, or "
                    "use Download"),
          reason::kNotShared);
    }
    if (request->writable() && ref->read_only()) {
      return WithReason(absl::FailedPreconditionError(
                            "the buffer is published and so read-only; export it with writable "
                            "unset"),
                        reason::kReadOnly);
    }
    auto token = share->Offer(fd, request->writable());
    if (!token.ok()) return token.status();
    response->set_token(ToBytes(*token));
    response->set_share_socket(share->address());
    response->set_size_bytes(ref->buffer->spec().size_bytes);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* BufferService::ImportBuffer(grpc::CallbackServerContext* context,
                                                      const v1::ImportBufferRequest* request,
                                                      v1::Buffer* response) {
  return Unary(import_, context, [&](Call& call) -> absl::Status {
    if (absl::Status open = call.state().CheckOpen(); !open.ok()) return open;
    auto use = Use(call, request->session_id());
    if (!use.ok()) return use.status();
    if (absl::Status label = CheckLabel(request->label()); !label.ok()) return label;
    auto spec = ConvertSpec(request->dtype(), request->shape(), request->size_bytes());
    if (!spec.ok()) return spec.status();
    spec->kind = kernels::MemoryKind::kHostShared;
    spec->label = request->label();
    ShareSocket* share = call.state().share();
    if (share == nullptr) {
      return WithReason(absl::FailedPreconditionError(
                            "this server offers no shared memory (share.disabled); use Upload"),
                        reason::kNotShared);
    }
    auto token = ConvertHandle(request->token(), "token");
    if (!token.ok()) return token.status();
    auto fd = share->Redeem(*token);
    if (!fd.ok()) return fd.status();
    return Make(call, **use, *(*use)->options().device, *std::move(spec), fd->get(), response);
  });
}

}  // namespace gemmd::server
