// BufferService on the wire. Uploads and downloads bypass protobuf for their bytes: see upload.h
// and download.h.

#ifndef GEMMD_SERVER_SERVICE_BUFFERS_BUFFER_SERVICE_H_
#define GEMMD_SERVER_SERVICE_BUFFERS_BUFFER_SERVICE_H_

#include <memory>

#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "server/service/wire/call.h"
#include "server/service/wire/rpcs.h"

namespace gemmd::server {

class BufferService {
 public:
  explicit BufferService(ServiceContext& context);
  grpc::Service& wire() { return rpcs_; }

 private:
  using DeleteBuffersCall = std::shared_ptr<PendingCall<v1::DeleteBuffersResponse>>;

  absl::Status CreateBuffer(Call& call, const v1::CreateBufferRequest& request,
                            v1::Buffer* response);
  absl::Status GetBuffer(Call& call, const v1::GetBufferRequest& request, v1::Buffer* response);
  absl::Status ListBuffers(Call& call, const v1::ListBuffersRequest& request,
                           v1::ListBuffersResponse* response);
  void DeleteBuffers(DeleteBuffersCall call, const v1::DeleteBuffersRequest& request);
  absl::Status PublishBuffer(Call& call, const v1::PublishBufferRequest& request,
                             v1::PublishBufferResponse* response);
  absl::Status FindBuffer(Call& call, const v1::FindBufferRequest& request, v1::Buffer* response);
  absl::Status UnpublishBuffer(Call& call, const v1::UnpublishBufferRequest& request,
                               v1::UnpublishBufferResponse* response);
  absl::Status ListPublished(Call& call, const v1::ListPublishedRequest& request,
                             v1::ListPublishedResponse* response);
  absl::Status SwitchVersion(Call& call, const v1::SwitchVersionRequest& request,
                             v1::SwitchVersionResponse* response);
  absl::Status ExportBuffer(Call& call, const v1::ExportBufferRequest& request,
                            v1::ExportBufferResponse* response);
  absl::Status ImportBuffer(Call& call, const v1::ImportBufferRequest& request,
                            v1::Buffer* response);

  Method create_, get_, list_, delete_, publish_, find_, unpublish_, list_published_, switch_,
      upload_, download_, export_, import_;
  Rpcs<v1::BufferService> rpcs_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_BUFFERS_BUFFER_SERVICE_H_
