#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "server/engine/observe/label.h"
#include "server/service/buffers/buffer_call.h"
#include "server/service/buffers/buffer_sharing.h"
#include "server/service/buffers/download.h"
#include "server/service/buffers/upload.h"
#include "server/service/services.h"
#include "server/service/wire/convert.h"
#include "server/service/wire/page.h"
#include "server/service/wire/rpcs.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

absl::Status CreateBuffer(Call& call, const v1::CreateBufferRequest& request,
                          v1::Buffer* response) {
  GEMMD_RETURN_IF_ERROR(call.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  GEMMD_RETURN_IF_ERROR(CheckLabel(request.label()));
  GEMMD_ASSIGN_OR_RETURN(auto spec,
                         ConvertSpec(request.dtype(), request.shape(), request.size_bytes()));
  spec.label = request.label();
  if (!v1::MemoryKind_IsValid(request.memory_kind())) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_kind ", static_cast<int>(request.memory_kind()),
                     " is not known here; use DEVICE, HOST_SHARED or DEVICE_SHARED"));
  }
  if (request.memory_kind() == v1::MEMORY_KIND_DEVICE_IMPORTED) {
    return absl::InvalidArgumentError(
        "memory_kind DEVICE_IMPORTED is a client's own memory; hand it over with ImportBuffer");
  }
  spec.kind = Convert(request.memory_kind());
  Device* device = use->options().device;
  if (!request.device().empty()) {
    GEMMD_ASSIGN_OR_RETURN(device, call.state().FindDevice(request.device()));
  }
  return MakeBuffer(call, *use, *device, std::move(spec), {}, response);
}

absl::Status GetBuffer(Call& call, const v1::GetBufferRequest& request, v1::Buffer* response) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  Handle handle;
  GEMMD_ASSIGN_OR_RETURN(auto ref, ResolveBuffer(*use, request.buffer_id(), handle));
  FillBuffer(call.state(), handle, ref, response);
  return absl::OkStatus();
}

absl::Status ListBuffers(Call& call, const v1::ListBuffersRequest& request,
                         v1::ListBuffersResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  GEMMD_ASSIGN_OR_RETURN(auto page, ConvertPage(request.page_size(), request.page_token()));
  const auto buffers = use->Buffers();
  const int64_t total = static_cast<int64_t>(buffers.size());
  for (int64_t i = page.skip; i < total && i < page.skip + page.size; ++i) {
    FillBuffer(call.state(), buffers[i].handle, buffers[i].ref, response->add_buffers());
  }
  response->set_next_page_token(NextToken(page, total));
  return absl::OkStatus();
}

void DeleteBuffers(std::shared_ptr<PendingCall<v1::DeleteBuffersResponse>> call,
                   const v1::DeleteBuffersRequest& request) {
  constexpr int kMost = 1000;
  // The answer, held by this function and by imported buffers until they are unmapped.
  const auto status = std::make_shared<absl::Status>();
  const std::shared_ptr<void> answer(nullptr, [=](void*) { call->Finish(*status); });
  *status = [&]() -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(auto use, call->call().UseSession(request.session_id()));
    if (request.buffer_ids_size() > kMost) {
      return absl::InvalidArgumentError(absl::StrCat("buffer_ids has ", request.buffer_ids_size(),
                                                     " entries, limit ", kMost,
                                                     "; delete in parts"));
    }
    std::vector<Handle> handles;
    for (const std::string& id : request.buffer_ids()) {
      GEMMD_ASSIGN_OR_RETURN(auto handle, ConvertHandle(id, "buffer_ids"));
      handles.push_back(handle);
    }
    GEMMD_ASSIGN_OR_RETURN(auto freed, use->DeleteBuffers(handles, answer));
    call->response()->set_freed_bytes(freed);
    return absl::OkStatus();
  }();
}

absl::Status PublishBuffer(Call& call, const v1::PublishBufferRequest& request,
                           v1::PublishBufferResponse*) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  Handle handle;
  GEMMD_ASSIGN_OR_RETURN(auto ref, ResolveBuffer(*use, request.buffer_id(), handle));
  PublishOptions options{.owner = std::string(call.principal_name()),
                         .content_hash = request.content_hash(),
                         .session = use->key()};
  if (request.has_ttl()) options.ttl = FromProto(request.ttl());
  GEMMD_ASSIGN_OR_RETURN(auto claim, call.state().published().Publish(call.tenant(), request.name(),
                                                                      ref, std::move(options)));
  use->KeepClaim(handle, std::move(claim));
  return absl::OkStatus();
}

absl::Status FindBuffer(Call& call, const v1::FindBufferRequest& request, v1::Buffer* response) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  GEMMD_ASSIGN_OR_RETURN(auto found,
                         call.state().published().Find(call.tenant(), request.name(), use->key()));
  const BufferRef ref{.buffer = std::move(found.buffer), .found = true};
  GEMMD_ASSIGN_OR_RETURN(auto handle, use->AddBuffer(ref, std::move(found.claim)));
  FillBuffer(call.state(), handle, ref, response);
  return absl::OkStatus();
}

absl::Status UnpublishBuffer(Call& call, const v1::UnpublishBufferRequest& request,
                             v1::UnpublishBufferResponse*) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call.UseSession(request.session_id()));
  return call.state().published().Unpublish(call.tenant(), request.name(), request.unless_held());
}

absl::Status SwitchVersion(Call& call, const v1::SwitchVersionRequest& request,
                           v1::SwitchVersionResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto switched, call.state().published().Switch(
                                            call.tenant(), request.name(), request.version()));
  response->set_previous_version(switched.previous);
  response->set_names(switched.names);
  call.state().log().Info("version_switched", {{"tenant", call.tenant().name()},
                                               {"principal", call.principal_name()},
                                               {"name", request.name()},
                                               {"version", request.version()},
                                               {"previous", switched.previous}});
  return absl::OkStatus();
}

absl::Status ListPublished(Call& call, const v1::ListPublishedRequest& request,
                           v1::ListPublishedResponse* response) {
  GEMMD_ASSIGN_OR_RETURN(auto page, ConvertPage(request.page_size(), request.page_token()));
  const auto buffers = call.state().published().List(call.tenant());
  const int64_t total = static_cast<int64_t>(buffers.size());
  for (int64_t i = page.skip; i < total && i < page.skip + page.size; ++i) {
    DescribeBuffer(call.state(), {.buffer = buffers[i].buffer, .found = true},
                   response->add_buffers());
  }
  response->set_next_page_token(NextToken(page, total));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<grpc::Service> MakeBufferService(ServiceContext& context) {
  auto rpcs = std::make_unique<Rpcs<v1::BufferService>>(context);
  rpcs->Serve(CreateBuffer);
  rpcs->Serve(GetBuffer);
  rpcs->Serve(ListBuffers);
  rpcs->Serve(DeleteBuffers);
  rpcs->Serve(PublishBuffer);
  rpcs->Serve(FindBuffer);
  rpcs->Serve(UnpublishBuffer);
  rpcs->Serve(ListPublished);
  rpcs->Serve(SwitchVersion);
  rpcs->Serve(ExportBuffer);
  rpcs->Serve(ImportBuffer);
  rpcs->ServeReader<v1::UploadRequest>([](auto&... call) { return new UploadStream(call...); });
  rpcs->ServeWriter<v1::DownloadRequest, grpc::ByteBuffer>(
      [](auto&... call) { return new DownloadStream(call...); });
  return rpcs;
}

}  // namespace gemmd::server
