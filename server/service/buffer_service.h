// BufferService on the wire. Uploads and downloads bypass protobuf for their bytes: see upload.h
// and download.h.

#ifndef GEMMD_SERVER_SERVICE_BUFFER_SERVICE_H_
#define GEMMD_SERVER_SERVICE_BUFFER_SERVICE_H_

#include "gemmd/v1/buffer_service.grpc.pb.h"
#include "server/service/call.h"

namespace gemmd::server {

// Every method as a callback, the two that carry bulk as raw callbacks.
template <typename Base>
using BufferServiceUnary = v1::BufferService::WithCallbackMethod_CreateBuffer<
    v1::BufferService::WithCallbackMethod_GetBuffer<
        v1::BufferService::WithCallbackMethod_ListBuffers<
            v1::BufferService::WithCallbackMethod_DeleteBuffers<
                v1::BufferService::WithCallbackMethod_PublishBuffer<
                    v1::BufferService::WithCallbackMethod_FindBuffer<
                        v1::BufferService::WithCallbackMethod_UnpublishBuffer<
                            v1::BufferService::WithCallbackMethod_ListPublished<
                                v1::BufferService::WithCallbackMethod_ExportBuffer<
                                    v1::BufferService::WithCallbackMethod_ImportBuffer<
                                        Base>>>>>>>>>>;
using BufferServiceBase = BufferServiceUnary<v1::BufferService::WithRawCallbackMethod_Upload<
    v1::BufferService::WithRawCallbackMethod_Download<v1::BufferService::Service>>>;

class BufferService final : public BufferServiceBase {
 public:
  explicit BufferService(ServiceContext& context);

  grpc::ServerUnaryReactor* CreateBuffer(grpc::CallbackServerContext* context,
                                         const v1::CreateBufferRequest* request,
                                         v1::Buffer* response) override;
  grpc::ServerUnaryReactor* GetBuffer(grpc::CallbackServerContext* context,
                                      const v1::GetBufferRequest* request,
                                      v1::Buffer* response) override;
  grpc::ServerUnaryReactor* ListBuffers(grpc::CallbackServerContext* context,
                                        const v1::ListBuffersRequest* request,
                                        v1::ListBuffersResponse* response) override;
  grpc::ServerUnaryReactor* DeleteBuffers(grpc::CallbackServerContext* context,
                                          const v1::DeleteBuffersRequest* request,
                                          v1::DeleteBuffersResponse* response) override;
  grpc::ServerUnaryReactor* PublishBuffer(grpc::CallbackServerContext* context,
                                          const v1::PublishBufferRequest* request,
                                          v1::PublishBufferResponse* response) override;
  grpc::ServerUnaryReactor* FindBuffer(grpc::CallbackServerContext* context,
                                       const v1::FindBufferRequest* request,
                                       v1::Buffer* response) override;
  grpc::ServerUnaryReactor* UnpublishBuffer(grpc::CallbackServerContext* context,
                                            const v1::UnpublishBufferRequest* request,
                                            v1::UnpublishBufferResponse* response) override;
  grpc::ServerUnaryReactor* ListPublished(grpc::CallbackServerContext* context,
                                          const v1::ListPublishedRequest* request,
                                          v1::ListPublishedResponse* response) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Download(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ExportBuffer(grpc::CallbackServerContext* context,
                                         const v1::ExportBufferRequest* request,
                                         v1::ExportBufferResponse* response) override;
  grpc::ServerUnaryReactor* ImportBuffer(grpc::CallbackServerContext* context,
                                         const v1::ImportBufferRequest* request,
                                         v1::Buffer* response) override;

 private:
  Method create_, get_, list_, delete_, publish_, find_, unpublish_, list_published_, upload_,
      download_, export_, import_;
};

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_SERVICE_BUFFER_SERVICE_H_
