// The part of QueueStream that reads ahead, and accepts what was read.

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/reason.h"
#include "server/engine/sessions/host_bytes.h"
#include "server/service/compute/queue.h"
#include "status/propagate.h"

namespace gemmd::server {
namespace {

constexpr int kFewOps = 4;
// Of a message on the wire, up to which the tenant is not charged for it.
constexpr int64_t kUnchargedBytes = 8 << 10;

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

absl::StatusOr<std::shared_ptr<const Charge>> QueueStream::ChargeMessage(
    const v1::QueueRequest& message, int64_t bytes) {
  if (bytes <= kUnchargedBytes) return std::shared_ptr<const Charge>();
  int64_t data = 0;
  if (message.has_batch()) data = InlineBytes(message.batch());
  for (const v1::Batch& batch : message.batches().items()) data += InlineBytes(batch);
  GEMMD_ASSIGN_OR_RETURN(auto charge,
                         call_.tenant().TakeHostBytes(data + kParsedByte * (bytes - data)));
  return std::make_shared<const Charge>(std::move(charge));
}

// The next read comes first: its message arrives while this one is accepted, on another thread if
// one is free.
void QueueStream::OnReadDone(bool ok) {
  absl::StatusOr<std::shared_ptr<const Charge>> charge = std::shared_ptr<const Charge>();
  int64_t bytes = 0;
  if (ok) {
    const v1::QueueRequest* message = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      message = &inbox_.next()->message;  // nobody else's until it is pushed
    }
    bytes = static_cast<int64_t>(message->ByteSizeLong());
    charge = ChargeMessage(*message, bytes);
  }
  {
    absl::MutexLock lock(&mutex_);
    reading_ = false;
    read_all_ |= !ok;
    if (ok && charge.ok()) inbox_.Push(bytes, *std::move(charge));
  }
  if (!charge.ok()) return EndAfterAnswers(charge.status());
  Drive();
  AcceptAll();
}

absl::StatusOr<RunRequest> QueueStream::Prepare(const v1::Batch& batch) {
  GEMMD_RETURN_IF_ERROR(call_.state().CheckOpen());
  GEMMD_ASSIGN_OR_RETURN(auto use, session_->Use(call_.state().clock().Now()));
  if (batch.has_plan() && batch.ops_size() > 0) {
    return absl::InvalidArgumentError("the batch has both ops and a plan; give one of them");
  }
  auto run = batch.has_plan() ? PreparePlan(std::move(use), batch.plan())
             : kernels_ == Kernels::kBest
                 ? PrepareComingAgain(std::move(use), batch.ops())
                 : PrepareOps(std::move(use), batch.ops(), nullptr, kernels_);
  if (!run.ok()) return run.status();
  run->priority = priority_;
  run->deadline = deadline_;
  return run;
}

absl::StatusOr<bool> QueueStream::Enter(const std::shared_ptr<Entry>& entry) {
  const Limits& limits = call_.tenant().limits();
  absl::MutexLock lock(&mutex_);
  if (ending_) return false;
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
  return true;
}

absl::StatusOr<bool> QueueStream::Accept(v1::Batch* batch) {
  if (batch->sequence() <= last_sequence_) {
    return absl::InvalidArgumentError(absl::StrCat("batch sequence ", batch->sequence(),
                                                   " is not above the last one, ", last_sequence_));
  }
  last_sequence_ = batch->sequence();
  auto entry = std::make_shared<Entry>();
  entry->sequence = batch->sequence();
  if (call_.SamplesBatch()) entry->sampled_at = absl::Now();
  entry->inline_bytes = InlineBytes(*batch);
  GEMMD_ASSIGN_OR_RETURN(const bool entered, Enter(entry));
  if (!entered) return true;
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
    absl::MutexLock lock(&mutex_);
    entry->batch_charge = inbox_.front_charge();
  }
  run->inputs_charged = true;  // by the message they came in
  for (const int64_t bytes : run->output_bytes) entry->result_bytes += bytes;
  run->chain = chain_;
  run->chain_position = entry->sequence;
  CountRun(call_.state(), *run);
  {
    absl::MutexLock lock(&mutex_);
    if (!MayStart(*run, *entry)) {
      waiting_ = std::make_unique<Waiting>(Waiting{entry, *std::move(run)});
      return false;
    }
    NoteStarted(*run, *entry);
  }
  Start(entry, *std::move(run));
  return true;
}

absl::StatusOr<bool> QueueStream::Take(v1::QueueRequest& message, int item) {
  if (session_ == nullptr) {
    const absl::Status opened =
        message.has_open()
            ? Open(message.open())
            : absl::InvalidArgumentError("the first message is not `open`; send that first");
    return opened.ok() ? absl::StatusOr<bool>(true) : opened;
  }
  if (v1::Batch* batch = BatchAt(message, item)) return Accept(batch);
  return absl::InvalidArgumentError(message.has_batches()
                                        ? "`batches` holds no batch; give 1 at least"
                                        : "the message is not a batch; `open` comes once, first");
}

void QueueStream::AcceptAll() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(accepting_, true)) return;
  }
  AcceptOn();
}

void QueueStream::AcceptOn() {
  {
    absl::MutexLock lock(&mutex_);
    ++accepting_threads_;
  }
  AcceptInbox();
  {
    absl::MutexLock lock(&mutex_);
    --accepting_threads_;
  }
  Drive();  // what was left to this thread
}

void QueueStream::AcceptInbox() {
  for (;;) {
    v1::QueueRequest* message = nullptr;
    int item = 0;
    bool valid = true;
    {
      absl::MutexLock lock(&mutex_);
      if (ending_) return;
      if (!inbox_.empty()) {
        message = &inbox_.front();
        valid = inbox_.front_valid();
        item = item_;
        accepts_few_ops_ = FewOpsNext();
      } else if (!read_all_) {
        accepting_ = false;
        return;
      }
    }
    if (message == nullptr) return EndAfterAnswers(absl::OkStatus());
    if (!valid) return EndAfterAnswers(NotAMessage(*v1::QueueRequest::descriptor()));
    const absl::StatusOr<bool> taken = Take(*message, item);
    if (!taken.ok()) return EndAfterAnswers(taken.status());
    if (!*taken) return;  // whoever gives the batch its turn may be accepting by now
    Advance();
  }
}

bool QueueStream::FewOpsNext() {
  if (inbox_.empty()) return false;
  const v1::Batch* batch = BatchAt(inbox_.front(), item_);
  return batch == nullptr || batch->ops_size() <= kFewOps;
}

void QueueStream::Advance() {
  {
    absl::MutexLock lock(&mutex_);
    if (BatchAt(inbox_.front(), ++item_) == nullptr) {
      inbox_.Pop();
      item_ = 0;
    }
    accepts_few_ops_ = FewOpsNext();
  }
  Drive();
}

}  // namespace gemmd::server
