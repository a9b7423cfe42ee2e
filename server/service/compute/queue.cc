#include "server/service/compute/queue.h"

#include <utility>

#include "prometheus/gauge.h"
#include "server/engine/reason.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

// Completions in one message: enough to catch up with, not so many that the message grows past any
// limit.
constexpr size_t kMostCompletions = 256;
constexpr int64_t kMostOutputBytes = 1 << 20;  // of results and reports
constexpr int64_t kMostKeptBytes = 64 << 10;
// Completions that wait until a small batch is accepted, to be written by the thread that accepts.
constexpr int kMostLeft = 4;
constexpr int kStepsInTurn = 2;  // a write, and the read that a thread left meanwhile

// About what a completion's report takes.
int64_t ReportBytes(const Outcome& outcome, v1::ReportLevel level) {
  constexpr int64_t kOfAnOp = 96;
  if (level != v1::REPORT_LEVEL_FULL || outcome.program == nullptr) return 0;
  return kOfAnOp * static_cast<int64_t>(outcome.program->steps().size());
}

}  // namespace

QueueStream* QueueStream::Start(Method& method, grpc::CallbackServerContext* context) {
  std::shared_ptr<QueueStream> stream(new QueueStream(method, context));
  stream->self_ = stream;
  method.context().streams.Add(stream);
  if (!stream->call_.admission().ok()) {
    stream->EndAfterAnswers(stream->call_.admission());
    return stream.get();
  }
  method.state().metrics().Streams(method.name()).Increment();
  stream->Drive();
  return stream.get();
}

absl::Status QueueStream::Open(const v1::QueueOpen& open) {
  GEMMD_RETURN_IF_ERROR(call_.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(Charge charge, call_.tenant().TakeStream());
  {
    absl::MutexLock lock(&mutex_);
    charge_ = std::move(charge);
  }
  GEMMD_ASSIGN_OR_RETURN(auto priority, Convert(open.priority()));
  GEMMD_ASSIGN_OR_RETURN(auto use, call_.UseSession(open.session_id()));
  priority_ = priority;
  report_ = open.report();
  kernels_ = open.deterministic() ? Kernels::kShipped : Kernels::kBest;
  session_ = use->shared_from_this();
  chain_ = std::make_shared<Chain>();
  if (open.hold_session()) {
    // Weak: the session must not keep a stream that is gone.
    std::weak_ptr<QueueStream> weak = self_;
    const auto end = [weak](absl::Status status) {
      if (auto stream = weak.lock()) stream->EndAfterAnswers(std::move(status));
    };
    auto ticket = session_->Hold(
        {.ended =
             [end] {
               end(WithReason(absl::NotFoundError("the session has ended"), reason::kSessionGone));
             },
         .replaced =
             [end] {
               end(WithReason(absl::AbortedError("another stream holds this session now"),
                              reason::kCancelled));
             }});
    if (!ticket.ok()) return ticket.status();
    hold_ticket_ = *ticket;
  }
  {
    absl::MutexLock lock(&mutex_);
    opened_pending_ = true;
  }
  Drive();
  return absl::OkStatus();
}

bool QueueStream::Gather() {
  sending_opened_ = std::exchange(opened_pending_, false);
  if (sending_opened_) return true;
  int64_t bytes = 0;
  while (!entries_.empty() && entries_.front()->done && sending_.size() < kMostCompletions &&
         bytes < kMostOutputBytes) {
    const Entry& entry = *entries_.front();
    const int64_t more =
        entry.status.ok() ? entry.result_bytes + ReportBytes(*entry.outcome, report_) : 0;
    // Only a result that is larger by itself makes a larger message: docs/operations.md counts on
    // it.
    if (bytes > 0 && bytes + more > kMostOutputBytes) break;
    inline_bytes_ -= entry.inline_bytes;
    --done_;
    if (entry.status.ok()) {
      bytes += more;
      sending_bytes_ += entry.result_bytes;
      sending_charges_.push_back(entry.outcome->charge);
    }
    sending_.push_back(std::move(entries_.front()));
    entries_.pop_front();
  }
  message_bytes_ += bytes;
  return !sending_.empty();
}

void QueueStream::FillMessage() {
  message_.Clear();
  if (sending_opened_) {
    const Limits& limits = call_.tenant().limits();
    v1::QueueOpened* opened = message_.mutable_opened();
    opened->set_window_batches(limits.window_batches);
    opened->set_window_bytes(limits.window_bytes);
    opened->set_max_batches_per_message(limits.window_batches);
    opened->set_device(session_->options().device->name());
    return;
  }
  v1::Completions* completions = message_.mutable_completions();
  for (const std::shared_ptr<Entry>& entry : sending_) {
    v1::Completion* item = completions->add_items();
    item->set_sequence(entry->sequence);
    if (entry->status.ok()) {
      FillCompletion(*entry->outcome, report_, *item);
      entry->outcome.reset();
    } else {
      item->set_code(static_cast<int>(entry->status.code()));
      item->set_message(std::string(entry->status.message()));
      item->set_reason(ReasonOf(entry->status));
    }
  }
  sending_.clear();
}

bool QueueStream::LeaveToAccepting() const {
  return accepting_threads_ > 0 && accepts_few_ops_ && done_ < kMostLeft;
}

QueueStream::Step QueueStream::NextStep() {
  if (finished_) return Step::kNone;
  if (!reading_ && !read_all_ && !ending_ && !inbox_.full()) {
    reading_ = true;
    return Step::kRead;
  }
  if (writing_ || held_ > 0) return Step::kNone;
  if (!broken_ && !opened_pending_ && LeaveToAccepting()) return Step::kNone;
  if (!broken_ && Gather()) {
    writing_ = true;
    return Step::kWrite;
  }
  if (!ending_ || !(broken_ || entries_.empty())) return Step::kNone;
  finished_ = true;
  charge_.Release();  // who sees the end may open the next one; OnDone comes some time after
  return Step::kFinish;
}

// While a thread accepts, which comes by again, nobody stays for long: a device's harvest thread
// has other streams' programs to report. Its caller keeps this alive, and gRPC keeps the stream
// until this has finished it.
void QueueStream::Drive() {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(driving_, true)) return;
  int left = kStepsInTurn;
  while (left > 0 || accepting_threads_ == 0) {
    const Step step = NextStep();
    if (step == Step::kNone) break;
    --left;
    auto* const next = inbox_.next();
    const absl::Status status = status_;
    mutex_.Unlock();
    if (step == Step::kRead) {
      StartRead(next);
    } else if (step == Step::kWrite) {
      FillMessage();
      StartWrite(&message_);
    } else {
      Finish(call_.Finish(status));
    }
    mutex_.Lock();
  }
  driving_ = false;
}

void QueueStream::OnWriteDone(bool ok) {
  // A message that is used again keeps the memory of every part that was ever in it.
  if (message_bytes_ > kMostKeptBytes) {
    message_ = v1::QueueResponse();
    message_bytes_ = 0;
  }
  sending_charges_.clear();
  std::unique_ptr<Waiting> next;
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    broken_ |= !ok;
    result_bytes_ -= std::exchange(sending_bytes_, 0);
    next = NextTurn();
  }
  Drive();
  if (next != nullptr) TakeTurn(std::move(next));
}

void QueueStream::EndAfterAnswers(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!ending_) {
      ending_ = true;
      status_ = std::move(status);
    }
  }
  Drive();
}

void QueueStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    broken_ = true;
  }
  EndAfterAnswers(absl::CancelledError("the stream was cut"));
  CancelAll();
}

void QueueStream::DrainNow() { EndAfterAnswers(Draining()); }

void QueueStream::OnDone() {
  if (session_ != nullptr && hold_ticket_ > 0) {
    session_->Unhold(hold_ticket_, call_.state().clock().Now());
  }
  if (call_.admission().ok()) {
    call_.state().metrics().Streams(call_.method().name()).Decrement();
  }
  call_.method().context().streams.Remove(self_);
  self_.reset();
}

}  // namespace gemmd::server
