#include "server/service/buffers/upload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/buffer_service.pb.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "server/engine/reason.h"
#include "server/service/buffers/buffer_call.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// A wait for the tenant's rate looks this often whether the stream was cut.
constexpr absl::Duration kLongestWait = absl::Milliseconds(250);

}  // namespace

UploadStream::UploadStream(Method& method, grpc::CallbackServerContext* context,
                           grpc::ByteBuffer* response)
    : call_(method, context), response_(response) {
  absl::Status status = call_.admission();
  if (status.ok()) status = call_.state().CheckOpen();
  if (status.ok()) {
    auto charge = call_.tenant().TakeStream();
    if (charge.ok()) charge_ = *std::move(charge);
    status = charge.status();
  }
  if (!status.ok()) {
    Finish(call_.Finish(status));
    return;
  }
  call_.state().metrics().Streams(method.name()).Increment();
  counted_ = true;
  StartRead(&next_);
}

absl::Status UploadStream::Begin(const UploadChunk& chunk) {
  GEMMD_ASSIGN_OR_RETURN(auto use, call_.UseSession(chunk.session_id));
  Handle handle;
  GEMMD_ASSIGN_OR_RETURN(auto ref, ResolveBuffer(*use, chunk.buffer_id, handle));
  if (ref.read_only()) {
    return WithReason(absl::FailedPreconditionError(
                          "the buffer is published and so read-only; upload to a new one"),
                      reason::kReadOnly);
  }
  const int64_t size = ref.buffer->spec().size_bytes;
  if (chunk.offset_bytes < 0 || chunk.offset_bytes > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset_bytes=", chunk.offset_bytes, " is outside the buffer's 0 to ", size));
  }
  GEMMD_RETURN_IF_ERROR(ref.buffer->BeginUpload(chunk.offset_bytes));
  buffer_ = ref.buffer;
  uploading_ = true;
  use_ = std::move(use);
  next_offset_ = chunk.offset_bytes;
  first_chunk_ = absl::Now();
  return absl::OkStatus();
}

absl::Status UploadStream::Take(const UploadChunk& chunk) {
  if (!uploading_) GEMMD_RETURN_IF_ERROR(Begin(chunk));
  const int64_t size = buffer_->spec().size_bytes;
  if (chunk.offset_bytes != next_offset_) {
    return absl::InvalidArgumentError(absl::StrCat("offset_bytes=", chunk.offset_bytes,
                                                   " does not follow the last chunk, which "
                                                   "ended at ",
                                                   next_offset_, "; send chunks in order"));
  }
  if (chunk.data_bytes > size - next_offset_) {
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", chunk.data_bytes, " bytes at ",
                                                   next_offset_, " passes the buffer's end at ",
                                                   size, "; send no more than it holds"));
  }
  // The session lives as long as bytes arrive.
  GEMMD_RETURN_IF_ERROR(use_->Use(call_.state().clock().Now()).status());
  uint32_t crc = 0;
  for (const auto& piece : chunk.data) crc = ExtendCrc32c(crc, piece);
  if (crc != chunk.crc32c) {
    call_.state().metrics().ChecksumFailures().Increment();
    return WithReason(
        absl::DataLossError(absl::StrCat("the chunk at ", next_offset_, " has CRC32C 0x",
                                         absl::Hex(crc, absl::kZeroPad8), ", its sender said 0x",
                                         absl::Hex(chunk.crc32c, absl::kZeroPad8),
                                         "; go on from committed_bytes")),
        reason::kChecksum);
  }
  // gRPC reads a megabyte into some twenty pieces.
  GEMMD_RETURN_IF_ERROR(buffer_->memory().Gather(next_offset_, chunk.data));
  next_offset_ += chunk.data_bytes;
  committed_ += chunk.data_bytes;
  buffer_->CommitUpload(chunk.data_bytes);
  return absl::OkStatus();
}

// A read that ends while a message is taken is left to the thread that takes it.
void UploadStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    read_ = ok;
    if (std::exchange(taking_, true)) return;
  }
  while (const std::optional<bool> read = EndedRead()) {
    if (!TakeMessage(*read)) return;  // the stream has ended, and this may be gone
  }
}

// How the last read ended. None when it is under way still: then this thread is through.
std::optional<bool> UploadStream::EndedRead() {
  absl::MutexLock lock(&mutex_);
  taking_ = read_.has_value();
  return std::exchange(read_, std::nullopt);
}

// False when it has ended the stream.
bool UploadStream::TakeMessage(bool ok) {
  if (!ok) {
    absl::Status status;
    if (call_.cancelled()) {
      status = absl::CancelledError("the stream was cut");
    } else if (!uploading_) {
      status = absl::InvalidArgumentError("the upload ended without a chunk; send at least one");
    }
    End(status);
    return false;
  }
  message_.Swap(&next_);
  auto chunk = ParseUploadChunk(message_);
  absl::Status taken = chunk.status();
  absl::Duration wait;
  if (taken.ok()) {
    wait = call_.tenant().PaceUpload(chunk->data_bytes, call_.state().clock().Now());
    if (wait <= absl::ZeroDuration()) StartRead(&next_);
    taken = Take(*chunk);
  }
  if (!taken.ok()) {
    End(taken);
    return false;
  }
  message_.Clear();
  if (wait > absl::ZeroDuration()) ReadAfter(wait);
  return true;
}

void UploadStream::ReadAfter(absl::Duration wait) {
  if (wait <= absl::ZeroDuration() || call_.cancelled()) return StartRead(&next_);
  const absl::Duration step = std::min(wait, kLongestWait);
  alarm_ = grpc::Alarm();  // one that has fired cannot be set from its own callback
  alarm_.Set(absl::ToChronoTime(absl::Now() + step),
             [this, left = wait - step](bool) { ReadAfter(left); });
}

void UploadStream::End(const absl::Status& status) {
  if (uploading_) {
    uploading_ = false;
    buffer_->EndUpload();
    const absl::Duration duration = absl::Now() - first_chunk_;
    NoteTransfer(call_, *buffer_, "in", first_chunk_, duration, committed_);
    v1::UploadResponse response;
    response.set_committed_bytes(committed_);
    response.set_seconds(absl::ToDoubleSeconds(duration));
    const grpc::Slice bytes(response.SerializeAsString());
    *response_ = grpc::ByteBuffer(&bytes, 1);
  }
  LetGo();
  Finish(call_.Finish(status));
}

// Who has the answer may count on what this call held: the stream, and the memory of a buffer that
// is deleted next. OnDone comes some time after.
void UploadStream::LetGo() {
  buffer_.reset();
  use_ = SessionUse();
  charge_.Release();
  if (std::exchange(counted_, false)) {
    call_.state().metrics().Streams(call_.method().name()).Decrement();
  }
}

void UploadStream::OnDone() {
  if (uploading_) buffer_->EndUpload();
  delete this;
}

}  // namespace gemmd::server
