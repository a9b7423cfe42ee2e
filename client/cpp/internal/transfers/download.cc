#include <grpcpp/support/slice.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/errors.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/calls/raw_call.h"
#include "client/cpp/internal/connect/backoff.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/transfers/crc32c.h"
#include "client/cpp/internal/transfers/download_chunk.h"
#include "client/cpp/internal/transfers/grpc_transfer.h"

namespace gemmd::client {
namespace {

constexpr size_t kBulkDownloadBytes = 256 << 10;  // as for uploads

absl::Status Checksum(int64_t offset_bytes) {
  absl::Status status = absl::DataLossError(absl::StrCat(
      "a chunk at offset ", offset_bytes, " does not match its crc32c; it was damaged on the way"));
  SetReason(status, "CHECKSUM");
  return status;
}

class Download {
 public:
  Download(const Buffer::State& buffer, absl::Span<char> data, int64_t offset_bytes,
           const TransferOptions& options)
      : buffer_(buffer),
        session_(*buffer.session),
        data_(data),
        offset_bytes_(offset_bytes),
        options_(options),
        deadline_(session_.client().DeadlineOf(options.call)),
        backoff_(session_.client().options().retry) {}

  absl::StatusOr<TransferReport> Run() {
    const absl::Time start = absl::Now();
    TransferReport report = {.path = TransferPath::kGrpc, .bytes = Size()};
    while (done_ < Size()) {
      const int64_t before = done_;
      absl::Status status = Stream();
      if (status.ok()) break;
      if (BreakOf(status) == Break::kNone && !absl::IsDataLoss(status)) return status;
      if (done_ > before) backoff_.Reset();
      const std::optional<absl::Duration> pause = backoff_.Next(deadline_);
      if (!pause) return status;
      absl::SleepFor(*pause);
      ++report.resumes;
    }
    report.seconds = absl::ToDoubleSeconds(absl::Now() - start);
    return report;
  }

 private:
  int64_t Size() const { return static_cast<int64_t>(data_.size()); }

  // One stream, from done_ on.
  absl::Status Stream() {
    v1::DownloadRequest request;
    request.set_session_id(session_.id());
    request.set_buffer_id(std::string(buffer_.id.bytes()));
    request.set_offset_bytes(offset_bytes_ + done_);
    request.set_length_bytes(Size() - done_);
    request.set_chunk_bytes(options_.chunk_bytes);
    const std::shared_ptr<grpc::Channel> channel = data_.size() >= kBulkDownloadBytes
                                                       ? session_.connection().bulk()
                                                       : session_.connection().channel();
    grpc::ClientContext context;
    Prepare(session_.client(), context, options_.call, deadline_);
    const auto stream = RawServerStream(*channel, kDownloadMethod, context,
                                        ToByteBuffer(request.SerializeAsString()));
    absl::Status seen;  // what is wrong with what came
    grpc::ByteBuffer message;
    while (seen.ok() && stream->Read(&message)) seen = Take(message);
    if (!seen.ok()) context.TryCancel();
    const absl::Status status = FromGrpc(stream->Finish(), context);
    if (!seen.ok()) return seen;
    if (status.ok() && done_ < Size()) {
      return absl::UnavailableError(
          absl::StrCat("the download ended after ", done_, " of ", Size(), " bytes"));
    }
    return status;
  }

  absl::Status Take(const grpc::ByteBuffer& message) {
    std::vector<grpc::Slice> slices;
    if (!message.Dump(&slices).ok()) return absl::InternalError("an empty download message");
    const std::optional<DownloadChunk> chunk = ParseDownloadChunk(slices);
    if (!chunk) return absl::InternalError("a download message that is none");
    const int64_t at = offset_bytes_ + done_;
    if (chunk->offset_bytes != at || chunk->data_bytes > Size() - done_) {
      return absl::InternalError(absl::StrCat("a chunk of ", chunk->data_bytes, " bytes at offset ",
                                              chunk->offset_bytes, "; it belongs at ", at));
    }
    char* to = data_.data() + done_;
    CopyChunkData(slices, *chunk, to);
    const absl::string_view copied(to, static_cast<size_t>(chunk->data_bytes));
    if (Crc32c(copied) != chunk->crc32c) return Checksum(at);
    done_ += chunk->data_bytes;
    if (options_.progress) options_.progress(done_, Size());
    return absl::OkStatus();
  }

  const Buffer::State& buffer_;
  const SessionCore& session_;
  const absl::Span<char> data_;
  const int64_t offset_bytes_;
  const TransferOptions& options_;
  const absl::Time deadline_;
  Backoff backoff_;
  int64_t done_ = 0;  // of data_, filled and checked
};

}  // namespace

absl::StatusOr<TransferReport> GrpcDownload(const Buffer::State& buffer, absl::Span<char> data,
                                            int64_t offset_bytes, const TransferOptions& options) {
  return Download(buffer, data, offset_bytes, options).Run();
}

}  // namespace gemmd::client
