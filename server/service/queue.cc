#include "server/service/queue.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "prometheus/gauge.h"
#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

// Completions in one message: enough to catch up with, not so many that the message grows past any
// limit.
constexpr int kMostCompletions = 256;
constexpr int64_t kMostOutputBytes = 1 << 20;

int64_t InlineBytes(const v1::Batch& batch) {
  int64_t bytes = 0;
  for (const v1::Op& op : batch.ops()) {
    if (op.has_write()) bytes += static_cast<int64_t>(op.write().data().size());
  }
  for (const std::string& input : batch.plan().inputs()) {
    bytes += static_cast<int64_t>(input.size());
  }
  return bytes;
}

}  // namespace

QueueStream* QueueStream::Start(Method& method, StreamRegistry& streams,
                                grpc::CallbackServerContext* context) {
  std::shared_ptr<QueueStream> stream(new QueueStream(method, streams, context));
  stream->self_ = stream;
  method.state().metrics().Streams(method.name()).Increment();
  streams.Add(stream);
  if (stream->call_.admission().ok()) {
    stream->StartRead(&stream->request_);
  } else {
    stream->EndAfterAnswers(stream->call_.admission());
  }
  return stream.get();
}

absl::Status QueueStream::Open(const v1::QueueOpen& open) {
  if (absl::Status ready = call_.state().CheckOpen(); !ready.ok()) return ready;
  auto charge = call_.tenant().TakeStream();
  if (!charge.ok()) return charge.status();
  charge_ = *std::move(charge);
  auto priority = Convert(open.priority());
  if (!priority.ok()) return priority.status();
  auto use = call_.state().sessions().Use(call_.tenant(), open.session_id());
  if (!use.ok()) return use.status();
  priority_ = *priority;
  report_ = open.report();
  session_ = (*use)->shared_from_this();
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
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<RunRequest> QueueStream::Prepare(const v1::Batch& batch) {
  if (absl::Status open = call_.state().CheckOpen(); !open.ok()) return open;
  auto use = session_->Use(call_.state().clock().Now());
  if (!use.ok()) return use.status();
  if (batch.has_plan() && batch.ops_size() > 0) {
    return absl::InvalidArgumentError("the batch has both ops and a plan; give one of them");
  }
  auto run = batch.has_plan() ? PreparePlan(*std::move(use), batch.plan())
                              : PrepareOps(*std::move(use), batch.ops());
  if (!run.ok()) return run.status();
  run->priority = priority_;
  run->deadline = call_.deadline();
  return run;
}

absl::StatusOr<bool> QueueStream::Accept(v1::Batch* batch) {
  const Limits& limits = call_.tenant().limits();
  if (batch->sequence() <= last_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("batch sequence ", batch->sequence(),
                                                   " is not above the last one, ", last_sequence_));
  }
  last_sequence_ = batch->sequence();
  auto entry = std::make_shared<Entry>();
  entry->sequence = batch->sequence();
  entry->inline_bytes = InlineBytes(*batch);
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return true;
    if (static_cast<int>(entries_.size()) >= limits.window_batches ||
        inline_bytes_ + entry->inline_bytes > limits.window_bytes) {
      return WithReason(
          absl::ResourceExhaustedError(absl::StrCat(
              "batch ", entry->sequence, " comes with ", entries_.size(), " batches and ",
              inline_bytes_, " inline bytes in flight; the window is ", limits.window_batches,
              " batches and ", limits.window_bytes, " bytes; wait for completions")),
          reason::kWindow);
    }
    entries_.push_back(entry);
    inline_bytes_ += entry->inline_bytes;
  }
  if (batch->resume()) chain_ = std::make_shared<Chain>();
  absl::Status chained = chain_->Check(entry->sequence);
  absl::StatusOr<RunRequest> run = chained.ok() ? Prepare(*batch) : chained;
  if (!run.ok()) {
    chain_->Fail(entry->sequence);
    Complete(entry, run.status(), nullptr);
    return true;
  }
  // Spans of inline data point into the batch: it moves to the entry, and the spans with it stay
  // good, because swapping messages swaps pointers.
  if (entry->inline_bytes > 0) {
    entry->batch = std::make_unique<v1::Batch>();
    entry->batch->Swap(batch);
  }
  run->chain = chain_;
  run->chain_position = entry->sequence;
  CountRun(call_.state(), *run);
  {
    absl::MutexLock lock(&mutex_);
    if (!in_flight_.Orders(*run)) {
      waiting_ = std::make_unique<Waiting>(Waiting{entry, *std::move(run)});
      return false;
    }
    in_flight_.Add(*run);
    entry->in_flight = true;
  }
  Start(entry, *std::move(run));
  return true;
}

bool QueueStream::Gather() {
  message_.Clear();
  if (opened_pending_) {
    opened_pending_ = false;
    const Limits& limits = call_.tenant().limits();
    v1::QueueOpened* opened = message_.mutable_opened();
    opened->set_window_batches(limits.window_batches);
    opened->set_window_bytes(limits.window_bytes);
    opened->set_device(session_->options().device->name());
    return true;
  }
  int taken = 0;
  int64_t output_bytes = 0;
  while (!entries_.empty() && entries_.front()->done && taken < kMostCompletions &&
         output_bytes < kMostOutputBytes) {
    std::shared_ptr<Entry> entry = std::move(entries_.front());
    entries_.pop_front();
    inline_bytes_ -= entry->inline_bytes;
    v1::Completion* item = message_.mutable_completions()->add_items();
    item->set_sequence(entry->sequence);
    if (entry->status.ok()) {
      FillResponse(std::move(entry->outcome), report_,
                   report_ == v1::REPORT_LEVEL_NONE ? nullptr : item->mutable_report(),
                   item->mutable_outputs());
      for (const std::string& output : item->outputs()) {
        output_bytes += static_cast<int64_t>(output.size());
      }
    } else {
      item->set_code(static_cast<int>(entry->status.code()));
      item->set_message(std::string(entry->status.message()));
      item->set_reason(ReasonOf(entry->status));
    }
    ++taken;
  }
  return taken > 0;
}

void QueueStream::Advance() {
  absl::Status status;
  {
    absl::MutexLock lock(&mutex_);
    if (writing_ || finished_) return;
    if (!broken_ && Gather()) {
      writing_ = true;
    } else if (ending_ && (broken_ || entries_.empty())) {
      finished_ = true;
      status = status_;
    } else {
      return;
    }
    if (writing_) {
      // With the lock held, so that a second completion cannot overtake this one between Gather and
      // StartWrite.
      StartWrite(&message_);
      return;
    }
  }
  Finish(call_.Finish(status));
}

void QueueStream::OnReadDone(bool ok) {
  if (!ok) return EndAfterAnswers(absl::OkStatus());
  absl::Status status;
  bool read_on = true;
  if (session_ == nullptr) {
    status = request_.has_open()
                 ? Open(request_.open())
                 : absl::InvalidArgumentError("the first message is not `open`; send that first");
  } else if (request_.has_batch()) {
    const absl::StatusOr<bool> accepted = Accept(request_.mutable_batch());
    status = accepted.status();
    read_on = accepted.value_or(false);
  } else {
    status = absl::InvalidArgumentError("the message is not a batch; `open` comes once, first");
  }
  if (!status.ok()) return EndAfterAnswers(std::move(status));
  if (!read_on) return;  // whoever gives the batch its turn may be reading by now
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
  }
  StartRead(&request_);
}

void QueueStream::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    broken_ |= !ok;
  }
  Advance();
}

void QueueStream::EndAfterAnswers(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!ending_) {
      ending_ = true;
      status_ = std::move(status);
    }
  }
  Advance();
}

void QueueStream::OnCancel() {
  {
    absl::MutexLock lock(&mutex_);
    broken_ = true;
  }
  EndAfterAnswers(absl::CancelledError("the stream was cut"));
  CancelAll();
}

void QueueStream::DrainNow() {
  EndAfterAnswers(WithReason(absl::UnavailableError("the server is draining; go to another"),
                             reason::kDraining));
}

void QueueStream::OnDone() {
  if (session_ != nullptr && hold_ticket_ > 0) {
    session_->Unhold(hold_ticket_, call_.state().clock().Now());
  }
  call_.state().metrics().Streams(call_.method().name()).Decrement();
  streams_.Remove(self_);
  self_.reset();
}

}  // namespace gemmd::server
