#include <grpcpp/support/slice.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/calls/raw_call.h"
#include "client/cpp/internal/connect/backoff.h"
#include "client/cpp/internal/connect/buffer_state.h"
#include "client/cpp/internal/transfers/checksums.h"
#include "client/cpp/internal/transfers/grpc_transfer.h"
#include "gemmd/v1/wire.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// Below this the connection of the small calls serves; its own would cost more than it spares them.
constexpr size_t kBulkBytes = 256 << 10;
// From here on a cut upload resumes; below, it starts over, which spares the question before it.
constexpr size_t kResumeBytes = 8 << 20;

// Lends pieces of the caller's memory to gRPC and knows when all are back. A broken call gives them
// back late: the transport may still be writing them to the socket.
class Loan {
 public:
  // Waits; with a peer that has stopped reading it closes the connection to get them back.
  void AwaitReturn(Connection& connection) {
    const absl::Condition all_back(
        +[](int* out) { return *out == 0; }, &out_);
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(all_back, absl::Seconds(2))) return;
    }
    connection.ResetBulk();
    absl::MutexLock lock(&mu_);
    mu_.Await(all_back);
  }

  grpc::Slice Lend(absl::string_view bytes) {
    {
      absl::MutexLock lock(&mu_);
      ++out_;
    }
    return grpc::Slice(const_cast<char*>(bytes.data()), bytes.size(), &Loan::Returned, this);
  }

 private:
  static void Returned(void* loan) {
    auto* self = static_cast<Loan*>(loan);
    absl::MutexLock lock(&self->mu_);
    --self->out_;
  }

  absl::Mutex mu_;
  int out_ ABSL_GUARDED_BY(mu_) = 0;
};

// Where the server's latest upload to a buffer began and how much of it is durable.
struct Committed {
  int64_t offset_bytes;
  int64_t bytes;
  friend bool operator==(const Committed&, const Committed&) = default;
};

class Upload {
 public:
  Upload(const Buffer::State& buffer, absl::string_view data, int64_t offset_bytes,
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
    TransferReport report = {.path = TransferPath::kGrpc,
                             .bytes = static_cast<int64_t>(data_.size())};
    if (data_.empty()) return report;
    if (data_.size() >= kResumeBytes) GEMMD_RETURN_IF_ERROR(Ask());
    for (;;) {
      absl::Status status = Stream();
      if (status.ok()) break;
      const bool again = BreakOf(status) != Break::kNone || absl::IsDataLoss(status) ||
                         // The server has not noticed yet that the stream before this one is cut.
                         (absl::IsAborted(status) && report.resumes > 0);
      if (!again) return status;
      const std::optional<absl::Duration> pause = backoff_.Next(deadline_);
      if (!pause) return status;
      absl::SleepFor(*pause);
      ++report.resumes;
      GEMMD_RETURN_IF_ERROR(FindPlace());
    }
    report.seconds = absl::ToDoubleSeconds(absl::Now() - start);
    return report;
  }

 private:
  absl::Status Ask() {
    v1::GetBufferRequest request;
    request.set_buffer_id(std::string(buffer_.id.bytes()));
    const absl::StatusOr<v1::Buffer> info = session_.Ask<v1::Buffer>(request, options_.call);
    if (info.ok()) seen_ = {info->upload_offset_bytes(), info->committed_bytes()};
    return info.status();
  }

  // Moves done_ to what the cut stream has made durable.
  absl::Status FindPlace() {
    if (!seen_) return absl::OkStatus();  // a small one starts over
    const Committed before = *seen_;
    GEMMD_RETURN_IF_ERROR(Ask());
    // What was there before the stream is of an earlier upload: the server never saw this one.
    if (*seen_ == before || seen_->offset_bytes != offset_bytes_ + done_) return absl::OkStatus();
    if (seen_->bytes > 0) backoff_.Reset();
    done_ = std::min(done_ + seen_->bytes, static_cast<int64_t>(data_.size()));
    return absl::OkStatus();
  }

  // One stream, from done_ to the end.
  absl::Status Stream() {
    const int64_t remaining = static_cast<int64_t>(data_.size()) - done_;
    if (remaining == 0) return absl::OkStatus();  // all was durable, only the answer was lost
    Connection& connection = session_.connection();
    const std::shared_ptr<grpc::Channel> channel =
        data_.size() >= kBulkBytes ? connection.bulk() : connection.channel();
    Loan loan;
    absl::Status status;
    v1::UploadResponse response;
    {
      grpc::ClientContext context;
      Prepare(session_.client(), context, options_.call, deadline_);
      const auto stream = RawClientStream(*channel, kUploadMethod, context, &response);
      SendChunks(*stream, loan);
      status = FromGrpc(stream->Finish(), context);
    }
    loan.AwaitReturn(connection);
    if (status.ok() && response.committed_bytes() != remaining) {
      return absl::InternalError(absl::StrCat("the server committed ", response.committed_bytes(),
                                              " of ", remaining, " bytes"));
    }
    return status;
  }

  void SendChunks(grpc::ClientWriter<grpc::ByteBuffer>& stream, Loan& loan) {
    int64_t at = done_;
    const auto size = static_cast<int64_t>(data_.size());
    Checksums checksums(data_.substr(at), options_.chunk_bytes, options_.copy_threads);
    while (at < size) {
      const absl::string_view chunk = data_.substr(at, options_.chunk_bytes);
      std::string head;
      if (at == done_) {
        wire::AppendBytes(head, v1::UploadRequest::kSessionIdFieldNumber,
                          session_.facts().id.bytes());
        wire::AppendBytes(head, v1::UploadRequest::kBufferIdFieldNumber, buffer_.id.bytes());
      }
      wire::AppendInt(head, v1::UploadRequest::kOffsetBytesFieldNumber, offset_bytes_ + at);
      wire::AppendFixed32(head, v1::UploadRequest::kCrc32CFieldNumber, checksums.Next());
      wire::AppendLength(head, v1::UploadRequest::kDataFieldNumber, chunk.size());
      const grpc::Slice slices[] = {grpc::Slice(head), loan.Lend(chunk)};
      at += static_cast<int64_t>(chunk.size());
      if (!stream.Write(grpc::ByteBuffer(slices, 2))) return;  // Finish says why
      if (options_.progress) options_.progress(at, size);
    }
    stream.WritesDone();
  }

  const Buffer::State& buffer_;
  const SessionCore& session_;
  const absl::string_view data_;
  const int64_t offset_bytes_;
  const TransferOptions& options_;
  const absl::Time deadline_;
  Backoff backoff_;
  std::optional<Committed> seen_;
  int64_t done_ = 0;  // of data_, durable
};

}  // namespace

absl::StatusOr<TransferReport> GrpcUpload(const Buffer::State& buffer, absl::string_view data,
                                          int64_t offset_bytes, const TransferOptions& options) {
  return Upload(buffer, data, offset_bytes, options).Run();
}

}  // namespace gemmd::client
