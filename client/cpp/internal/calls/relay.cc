#include "client/cpp/internal/calls/relay.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "client/cpp/internal/calls/program.h"
#include "client/cpp/internal/transfers/wide_copy.h"
#include "client/cpp/ops.h"

namespace gemmd::client {

static_assert(Relay::kStagingBytes / Relay::kWindows % kCopyGrainBytes == 0,
              "no grain lies in two windows");

Relay::Relay(const Ends& ends, const TransferOptions& options)
    : ends_(ends),
      options_(options),
      deadline_(ends.buffer.session->client().DeadlineOf(options.call)) {}

Relay::~Relay() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](int* copies) { return *copies == 0; }, &copies_));
}

void Relay::Begin(int64_t size) {
  size_ = size;
  const auto room = static_cast<int64_t>(ends_.windows.size());
  window_bytes_ = std::min(room, StagingBytesFor(size)) / kWindows;
}

absl::Status Relay::Upload(absl::Span<const char> source) {
  source_ = source.data();
  Begin(static_cast<int64_t>(source.size()));
  {
    absl::MutexLock lock(&mu_);
    for (int64_t piece = 0; piece < kWindows; ++piece) GiveTurn(piece);
  }
  return Run();
}

absl::Status Relay::Download(absl::Span<char> target) {
  target_ = target.data();
  Begin(static_cast<int64_t>(target.size()));
  for (int64_t piece = 0; piece < kWindows; ++piece) Send(piece);
  return Run();
}

absl::Status Relay::Run() {
  const auto help = [this] { Work(/*report=*/false); };
  const auto lead = [this] {
    absl::Cleanup give_up = [this] {  // a callback of the caller's that throws
      absl::MutexLock lock(&mu_);
      status_.Update(absl::CancelledError("the transfer was given up"));
    };
    Work(/*report=*/true);
    std::move(give_up).Cancel();
  };
  RunWide(CopyThreads(size_, options_.copy_threads), help, lead);
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(
      +[](int* copies) { return *copies == 0; }, &copies_));
  if (options_.progress && status_.ok()) options_.progress(size_, size_);
  return status_;
}

void Relay::Work(bool report) {
  for (int64_t at; (at = TakeGrain()) >= 0;) {
    const int64_t bytes = std::min(kCopyGrainBytes, size_ - at);
    CopyGrain(at, bytes);
    if (FinishGrain(at, bytes)) {
      const int64_t piece = at / window_bytes_;
      Send(source_ != nullptr ? piece : piece + kWindows);
    }
    if (!report || !options_.progress) continue;
    int64_t done = 0;
    {
      absl::MutexLock lock(&mu_);
      done = done_;
    }
    if (done < size_) options_.progress(done, size_);
  }
}

int64_t Relay::TakeGrain() {
  absl::MutexLock lock(&mu_);
  const int64_t at = next_;
  if (at >= size_) return -1;
  next_ += kCopyGrainBytes;
  const auto may_go = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    const int64_t piece = at / window_bytes_;
    return windows_[piece % kWindows].piece == piece || !status_.ok();
  };
  mu_.Await(absl::Condition(&may_go));
  return status_.ok() ? at : -1;
}

void Relay::CopyGrain(int64_t at, int64_t bytes) {
  char* window = ends_.windows.data() + at % (kWindows * window_bytes_);
  if (source_ != nullptr) {
    std::memcpy(window, source_ + at, static_cast<size_t>(bytes));
  } else {
    std::memcpy(target_ + at, window, static_cast<size_t>(bytes));
  }
}

bool Relay::FinishGrain(int64_t at, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  done_ += bytes;
  Window& window = windows_[at / window_bytes_ % kWindows];
  window.left -= bytes;
  if (window.left > 0) return false;
  window.piece = -1;
  return true;
}

void Relay::Send(int64_t piece) {
  const int64_t at = piece * window_bytes_;
  if (at >= size_) return;
  {
    absl::MutexLock lock(&mu_);
    if (!status_.ok()) return;
    ++copies_;
  }
  const int64_t bytes = BytesOf(piece);
  const int64_t offset = ends_.offset_bytes + at;
  // A Copy moves bits whatever the type. A wide one has fewer elements; I8 needs no alignment.
  const bool wide = offset % 4 == 0 && bytes % 4 == 0;
  const DType dtype = wide ? DType::kF32 : DType::kI8;
  const std::vector<int64_t> shape = {wide ? bytes / 4 : bytes};
  Tensor from(ends_.staging, dtype, shape, at % (kWindows * window_bytes_));
  Tensor to(ends_.buffer.id, dtype, shape, offset);
  if (source_ == nullptr) std::swap(from, to);
  OpList ops;
  ops.Add(client::Copy{from, to});
  ExecuteOptions options = {.report = ReportLevel::kNone, .call = options_.call};
  if (deadline_ != absl::InfiniteFuture()) {
    options.call.timeout = std::max(deadline_ - absl::Now(), absl::Milliseconds(1));
  }
  const std::shared_ptr<SessionCore>& session = ends_.buffer.session;
  RunAsync(session, ExecuteProgram(*session, ops, options), options.call,
           [this, piece](const absl::StatusOr<Result>& result) { Sent(piece, result.status()); });
}

void Relay::Sent(int64_t piece, const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  status_.Update(status);
  GiveTurn(source_ != nullptr ? piece + kWindows : piece);
  --copies_;  // the last: whoever waits for none may destroy this
}

void Relay::GiveTurn(int64_t piece) {
  windows_[piece % kWindows] = {.piece = piece, .left = BytesOf(piece)};
}

int64_t Relay::BytesOf(int64_t piece) const {
  return std::min(window_bytes_, size_ - piece * window_bytes_);
}

}  // namespace gemmd::client
