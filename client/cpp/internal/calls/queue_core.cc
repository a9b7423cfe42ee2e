#include "client/cpp/internal/calls/queue_core.h"

#include <grpcpp/generic/generic_stub.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/errors.h"
#include "client/cpp/internal/calls/call.h"
#include "client/cpp/internal/calls/grpc_status.h"
#include "client/cpp/internal/calls/raw_call.h"
#include "client/cpp/internal/calls/reply.h"
#include "client/cpp/internal/connect/backoff.h"
#include "client/cpp/internal/connect/client_core.h"
#include "gemmd/v1/wire.h"
#include "status/propagate.h"

namespace gemmd::client {
namespace {

// A submitter that waits is woken when one part in so many of the window is free: waking it takes
// as long as a small batch, and what it then sends goes to the socket at once.
constexpr int kShareToWake = 8;

absl::StatusOr<Result> OutcomeOf(v1::Completion& completion) {
  if (completion.code() != 0) {
    absl::Status status(static_cast<absl::StatusCode>(completion.code()), completion.message());
    SetReason(status, completion.reason());
    return status;
  }
  return Result(Reply::Of(completion));
}

// What goes into one message with others: copying so much costs less than a message.
constexpr size_t kMostGatheredBytes = 64 << 10;

// A Batch up to its body.
std::string HeadOf(int64_t sequence, bool resume) {
  std::string head;
  wire::AppendInt(head, v1::Batch::kSequenceFieldNumber, sequence);
  wire::AppendInt(head, v1::Batch::kResumeFieldNumber, resume);
  return head;
}

}  // namespace

void Ticket::Slot::Complete(absl::StatusOr<Result> outcome) {
  if (callback) {
    callback(std::move(outcome));
    return;
  }
  absl::MutexLock lock(&mu);
  result = std::move(outcome);
  done = true;
}

absl::StatusOr<std::unique_ptr<QueueCore>> QueueCore::Open(std::shared_ptr<SessionCore> session,
                                                           const QueueOptions& options) {
  GEMMD_RETURN_IF_ERROR(session->client().Usable({.traceparent = options.traceparent}));
  KeepCallbackQueue();
  Backoff backoff(session->client().options().retry);
  const absl::Time deadline = session->client().DeadlineOf(CallOptions());
  for (;;) {
    auto core = std::unique_ptr<QueueCore>(new QueueCore(session, options.gather));
    const absl::Status status = core->Start(options);
    if (status.ok()) return core;
    if (!MayRetry(status, Again::kUnsentOnly)) return status;
    const std::optional<absl::Duration> pause = backoff.Next(deadline);
    if (!pause) return status;
    absl::SleepFor(*pause);
  }
}

absl::Status QueueCore::Start(const QueueOptions& options) {
  Prepare(session_->client(), context_, CallOptions{.traceparent = options.traceparent},
          absl::InfiniteFuture());
  v1::QueueRequest request;
  v1::QueueOpen& open = *request.mutable_open();
  open.set_session_id(session_->id());
  open.set_priority(static_cast<v1::Priority>(options.priority));
  open.set_report(static_cast<v1::ReportLevel>(options.report));
  open.set_hold_session(options.hold_session);
  open.set_deterministic(options.deterministic);
  grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::QueueResponse> stub(
      session_->connection().channel());
  stub.PrepareBidiStreamingCall(&context_, kQueueMethod, {}, this);
  absl::MutexLock lock(&mu_);
  AddHold();
  held_ = true;
  StartRead(&response_);
  StartCall();
  writing_ = true;
  write_ = ToByteBuffer(request.SerializeAsString());
  StartWrite(&write_);
  const absl::Time deadline = absl::Now() + options.open_timeout;
  while (!is_open_ && !broken_) {
    if (!room_.WaitWithDeadline(&mu_, deadline) || is_open_ || broken_) continue;
    return absl::DeadlineExceededError(absl::StrCat("the server did not open the queue within ",
                                                    absl::FormatDuration(options.open_timeout)));
  }
  return is_open_ ? absl::OkStatus() : Broken();
}

QueueCore::~QueueCore() {
  absl::MutexLock lock(&mu_);
  if (!over_) {
    if (protocol_.ok()) {
      protocol_ = absl::CancelledError(
          "the Queue object went before this batch was answered; Close it first to let batches "
          "finish");
    }
    context_.TryCancel();
  }
  Unhold();
  while (!over_) room_.Wait(&mu_);
}

void QueueCore::Unhold() {
  if (!held_) return;
  held_ = false;
  RemoveHold();
}

absl::Status QueueCore::Broken() {
  while (!over_) room_.Wait(&mu_);
  return status_.ok() ? absl::UnavailableError("the queue's stream has ended") : status_;
}

bool QueueCore::Fits(int64_t inline_bytes) const {
  // A batch larger than the window goes alone: the server says what it thinks of it.
  return in_flight_.empty() ||
         (static_cast<int>(in_flight_.size()) < opened_.window_batches() &&
          (inline_bytes == 0 || inline_bytes_ + inline_bytes <= opened_.window_bytes()));
}

bool QueueCore::HasRoom() const {
  const int window = opened_.window_batches();
  return inline_bytes_ > 0 || static_cast<int>(in_flight_.size()) <= window - window / kShareToWake;
}

absl::Status QueueCore::Submit(absl::string_view body, const SubmitOptions& options,
                               std::shared_ptr<Ticket::Slot> slot) {
  if (slot->inline_bytes > opened_.window_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a batch with ", slot->inline_bytes, " bytes of inline data; the queue's window holds ",
        opened_.window_bytes(), "; use Buffer::Upload"));
  }
  const absl::Time deadline = options.timeout > absl::ZeroDuration() ? absl::Now() + options.timeout
                                                                     : absl::InfiniteFuture();
  const grpc::Slice copied(body.data(), body.size());  // before the lock: it may be megabytes
  absl::ReleasableMutexLock lock(&mu_);
  for (;;) {
    if (closing_) return absl::FailedPreconditionError("the queue is closed");
    if (broken_) return Broken();
    if (Fits(slot->inline_bytes)) break;
    ++waiting_;
    const bool late = room_.WaitWithDeadline(&mu_, deadline);
    --waiting_;
    if (late && !broken_ && !Fits(slot->inline_bytes)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the queue's window of ", opened_.window_batches(), " batches stayed full"));
    }
  }
  slot->sequence = next_sequence_++;
  inline_bytes_ += slot->inline_bytes;
  outbox_.push_back({HeadOf(slot->sequence, options.resume), copied});
  in_flight_.push_back(std::move(slot));
  if (writing_) return absl::OkStatus();  // the completion of that write sends it
  const grpc::WriteOptions write = TakeNext();
  // Close lets go of its hold as soon as it has the lock; the stream must outlive this write's
  // start.
  AddHold();
  lock.Release();
  StartWrite(&write_, write);
  RemoveHold();
  return absl::OkStatus();
}

int QueueCore::Gathered() const {
  const int most = gather_ ? opened_.max_batches_per_message() : 1;
  int count = 1;
  size_t bytes = outbox_.front().size();
  while (count < most && count < static_cast<int>(outbox_.size())) {
    bytes += outbox_[count].size();
    if (bytes > kMostGatheredBytes) break;
    ++count;
  }
  return count;
}

grpc::WriteOptions QueueCore::TakeNext() {
  writing_ = true;
  std::string message;
  if (const int count = Gathered(); count == 1) {
    // The body stays in a slice of its own: it may be megabytes.
    const Unsent& batch = outbox_.front();
    wire::AppendLength(message, v1::QueueRequest::kBatchFieldNumber, batch.size());
    message += batch.head;
    const grpc::Slice slices[] = {grpc::Slice(message), batch.body};
    write_ = grpc::ByteBuffer(slices, 2);
    outbox_.pop_front();
  } else {
    std::string items;
    for (int i = 0; i < count; ++i) {
      const Unsent& batch = outbox_.front();
      wire::AppendLength(items, v1::Batches::kItemsFieldNumber, batch.size());
      items += batch.head;
      items.append(reinterpret_cast<const char*>(batch.body.begin()), batch.body.size());
      outbox_.pop_front();
    }
    wire::AppendLength(message, v1::QueueRequest::kBatchesFieldNumber, items.size());
    message += items;
    write_ = ToByteBuffer(message);
  }
  grpc::WriteOptions options;
  // More is behind it: lets gRPC put both into one write to the socket.
  if (!outbox_.empty()) options.set_buffer_hint();
  return options;
}

void QueueCore::OnWriteDone(bool ok) {
  grpc::WriteOptions options;
  {
    absl::MutexLock lock(&mu_);
    if (!ok || broken_) outbox_.clear();
    if (outbox_.empty()) {
      writing_ = false;
      if (closing_ && ok && !broken_) StartWritesDone();
      return;
    }
    options = TakeNext();
  }
  StartWrite(&write_, options);
}

void QueueCore::OnReadDone(bool ok) {
  if (ok && response_.has_opened()) {
    absl::MutexLock lock(&mu_);
    opened_.Swap(response_.mutable_opened());
    is_open_ = true;
    room_.SignalAll();
  } else if (ok && !Take(*response_.mutable_completions())) {
    context_.TryCancel();
    ok = false;
  }
  if (ok) {
    StartRead(&response_);
    return;
  }
  absl::MutexLock lock(&mu_);
  broken_ = true;
  Unhold();
  room_.SignalAll();
}

bool QueueCore::Take(v1::Completions& completions) {
  std::vector<std::shared_ptr<Ticket::Slot>> slots;
  slots.reserve(completions.items_size());
  {
    absl::MutexLock lock(&mu_);
    for (const v1::Completion& completion : completions.items()) {
      if (in_flight_.empty() || in_flight_.front()->sequence != completion.sequence()) {
        protocol_ = absl::InternalError(
            absl::StrCat("the server completed batch ", completion.sequence(), " out of order"));
        break;
      }
      inline_bytes_ -= in_flight_.front()->inline_bytes;
      slots.push_back(std::move(in_flight_.front()));
      in_flight_.pop_front();
    }
    completing_ = true;  // Drain waits for these callbacks, too
  }
  // Outside the lock: a callback may submit.
  for (size_t i = 0; i < slots.size(); ++i) {
    slots[i]->Complete(OutcomeOf(*completions.mutable_items(static_cast<int>(i))));
  }
  absl::MutexLock lock(&mu_);
  completing_ = false;
  if (waiting_ > 0 && (HasRoom() || !protocol_.ok())) room_.SignalAll();
  return protocol_.ok();
}

void QueueCore::OnDone(const grpc::Status& grpc_status) {
  absl::Status status = FromGrpc(grpc_status, context_);
  std::deque<std::shared_ptr<Ticket::Slot>> lost;
  {
    absl::MutexLock lock(&mu_);
    if (!protocol_.ok()) status = protocol_;
    lost.swap(in_flight_);
  }
  const absl::Status fate =
      status.ok() ? absl::UnavailableError("the queue's stream ended before this batch completed")
                  : status;
  for (const std::shared_ptr<Ticket::Slot>& slot : lost) slot->Complete(fate);
  absl::MutexLock lock(&mu_);
  broken_ = true;
  over_ = true;
  status_ = status;
  room_.SignalAll();  // under the lock: the destructor frees this once it sees over_
}

absl::Status QueueCore::Drain(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  absl::MutexLock lock(&mu_);
  while ((!in_flight_.empty() || completing_) && !broken_) {
    ++waiting_;
    const bool late = room_.WaitWithDeadline(&mu_, deadline);
    --waiting_;
    if (late && (!in_flight_.empty() || completing_)) {
      return absl::DeadlineExceededError(
          in_flight_.empty() ? "a completion's callback has not returned yet"
                             : absl::StrCat(in_flight_.size(), " batches are still in flight"));
    }
  }
  if (closing_ && over_) return status_;  // closed in good order, unless it says otherwise
  return broken_ ? Broken() : absl::OkStatus();
}

absl::Status QueueCore::Close() {
  const absl::Status drained = Drain(absl::InfiniteDuration());
  absl::MutexLock lock(&mu_);
  if (!closing_) {
    closing_ = true;
    if (!broken_ && !writing_) StartWritesDone();
    Unhold();
  }
  while (!over_) room_.Wait(&mu_);
  return drained.ok() ? status_ : drained;
}

}  // namespace gemmd::client
