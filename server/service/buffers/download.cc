#include "server/service/buffers/download.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "prometheus/gauge.h"
#include "server/service/buffers/buffer_call.h"
#include "server/service/wire/chunk.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr int64_t kDefaultChunk = 1 << 20;
constexpr int64_t kLeastChunk = 4 << 10;
constexpr int64_t kMostChunk = 3 << 20;   // under the 4 MiB that clients receive by default
constexpr int64_t kBesideData = 1 << 10;  // of a message's bytes

}  // namespace

DownloadStream::DownloadStream(Method& method, grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer& request)
    : call_(method, context) {
  if (absl::Status begun = Begin(request); !begun.ok()) {
    LetGo();
    Finish(call_.Finish(begun));
    return;
  }
  call_.state().metrics().Streams(method.name()).Increment();
  counted_ = true;
  started_ = absl::Now();
  Next();
}

absl::Status DownloadStream::Begin(const grpc::ByteBuffer& bytes) {
  v1::DownloadRequest request;
  GEMMD_RETURN_IF_ERROR(call_.Read(bytes, request));
  GEMMD_RETURN_IF_ERROR(call_.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(charge_, call_.tenant().TakeStream());
  GEMMD_ASSIGN_OR_RETURN(auto use, call_.UseSession(request.session_id()));
  Handle handle;
  GEMMD_ASSIGN_OR_RETURN(auto ref, ResolveBuffer(*use, request.buffer_id(), handle));
  const int64_t size = ref.buffer->spec().size_bytes;
  const int64_t offset = request.offset_bytes();
  if (offset < 0 || offset > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset_bytes=", offset, " is outside the buffer's 0 to ", size));
  }
  const int64_t length = request.length_bytes() == 0 ? size - offset : request.length_bytes();
  if (length < 0 || length > size - offset) {
    return absl::InvalidArgumentError(absl::StrCat("length_bytes=", request.length_bytes(),
                                                   " from offset_bytes=", offset,
                                                   " passes the buffer's end at ", size));
  }
  chunk_bytes_ = request.chunk_bytes() == 0 ? kDefaultChunk : request.chunk_bytes();
  if (chunk_bytes_ < kLeastChunk || chunk_bytes_ > kMostChunk) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_bytes=", chunk_bytes_, " is outside ",
                                                   kLeastChunk, " to ", kMostChunk));
  }
  // Each stream may have one unread: docs/operations.md counts on it.
  chunk_bytes_ = std::min(chunk_bytes_, call_.tenant().limits().max_message_bytes - kBesideData);
  begin_ = at_ = offset;
  end_ = offset + length;
  buffer_ = ref.buffer;
  use_ = std::move(use);
  return absl::OkStatus();
}

void DownloadStream::Next() {
  if (at_ == end_) return End(absl::OkStatus());
  const int64_t bytes = std::min(chunk_bytes_, end_ - at_);
  // A copy, not a view of the buffer: a program may write the buffer while gRPC still sends, and
  // the CRC must hold.
  grpc::Slice data(static_cast<size_t>(bytes));
  auto target =
      absl::MakeSpan(reinterpret_cast<std::byte*>(const_cast<uint8_t*>(data.begin())), data.size());
  if (absl::Status copied = buffer_->memory().CopyOut(at_, target); !copied.ok()) {
    return End(copied);
  }
  const uint32_t crc = ExtendCrc32c(0, target);
  message_ = MakeDownloadChunk(at_, crc, std::move(data));
  at_ += bytes;
  StartWrite(&message_);
}

void DownloadStream::OnWriteDone(bool ok) {
  if (!ok) return End(absl::CancelledError("the reader went away"));
  // The session lives as long as bytes are taken.
  if (auto use = use_->Use(call_.state().clock().Now()); !use.ok()) return End(use.status());
  Next();
}

void DownloadStream::End(const absl::Status& status) {
  NoteTransfer(call_, *buffer_, "out", started_, absl::Now() - started_, at_ - begin_);
  LetGo();
  Finish(call_.Finish(status));
}

// As UploadStream's.
void DownloadStream::LetGo() {
  buffer_.reset();
  use_ = SessionUse();
  charge_.Release();
  if (std::exchange(counted_, false)) {
    call_.state().metrics().Streams(call_.method().name()).Decrement();
  }
}

void DownloadStream::OnDone() { delete this; }

}  // namespace gemmd::server
