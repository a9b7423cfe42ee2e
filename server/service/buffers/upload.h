// UploadStream: chunks from the wire into a buffer, each checked, then copied.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/service/wire/call.h"
#include "server/service/wire/chunk.h"

namespace gemmd::server {

// Reads one message ahead of the one that it takes, unless the tenant's rate makes it wait between
// two: gRPC's flow control is the back-pressure. Deletes itself.
class UploadStream final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadStream(Method& method, grpc::CallbackServerContext* context, grpc::ByteBuffer* response);
  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  std::optional<bool> EndedRead() ABSL_LOCKS_EXCLUDED(mutex_);
  bool TakeMessage(bool ok);
  absl::Status Begin(const UploadChunk& chunk);
  absl::Status Take(const UploadChunk& chunk);
  void ReadAfter(absl::Duration wait);
  void End(const absl::Status& status);
  void LetGo();

  Call call_;
  grpc::ByteBuffer* const response_;
  absl::Mutex mutex_;
  bool taking_ ABSL_GUARDED_BY(mutex_) = false;       // a thread takes messages, and nobody else
  std::optional<bool> read_ ABSL_GUARDED_BY(mutex_);  // how the last read ended, until looked at
  grpc::ByteBuffer next_;                             // being read
  grpc::ByteBuffer message_;                          // being taken; with all below, that thread's
  Charge charge_;
  SessionUse use_;
  BufferLease buffer_;    // null before the first chunk
  bool counted_ = false;  // in the gauge of streams
  bool uploading_ = false;
  int64_t next_offset_ = 0;
  int64_t committed_ = 0;
  absl::Time first_chunk_;
  grpc::Alarm alarm_;  // of a wait
};

}  // namespace gemmd::server
