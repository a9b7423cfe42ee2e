// DownloadStream: a buffer's bytes to the wire in chunks, each with its CRC32C.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/service/wire/call.h"

namespace gemmd::server {

// One chunk in flight at a time: a reader that stops reading holds one chunk of ours, no more.
// Deletes itself.
class DownloadStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  DownloadStream(Method& method, grpc::CallbackServerContext* context,
                 const grpc::ByteBuffer& request);
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  absl::Status Begin(const grpc::ByteBuffer& request);
  void Next();
  void End(const absl::Status& status);
  void LetGo();

  Call call_;
  Charge charge_;
  SessionUse use_;
  BufferLease buffer_;
  bool counted_ = false;  // in the gauge of streams
  int64_t begin_ = 0;
  int64_t at_ = 0;
  int64_t end_ = 0;
  int64_t chunk_bytes_ = 0;
  absl::Time started_;
  grpc::ByteBuffer message_;
};

}  // namespace gemmd::server
