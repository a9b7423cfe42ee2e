// The part of QueueStream that gives batches to lanes, and keeps their order where no lane does.

#include <utility>
#include <vector>

#include "server/engine/reason.h"
#include "server/engine/scheduling/span_parts.h"
#include "server/service/compute/queue.h"

namespace gemmd::server {
namespace {

// Completions that wait for the next one, whose program has ended, too.
constexpr int kMostHeld = 8;

absl::Status Cut() {
  return WithReason(absl::CancelledError("the stream was cut before the program started"),
                    reason::kCancelled);
}

}  // namespace

void QueueStream::Start(const std::shared_ptr<Entry>& entry, RunRequest run) {
  RunTicket ticket = Run(std::move(run), [self = shared_from_this(), entry](
                                             std::shared_ptr<const Outcome> outcome, bool) {
    absl::Status status = outcome->result.status;
    self->Complete(entry, std::move(status), std::move(outcome));
  });
  absl::MutexLock lock(&mutex_);
  if (!entry->done) entry->ticket = std::move(ticket);
}

bool QueueStream::MayStart(const RunRequest& run, const Entry& entry) {
  if (!in_flight_.Orders(run)) return false;
  return result_bytes_ == 0 ||
         result_bytes_ + entry.result_bytes <= call_.tenant().limits().window_bytes;
}

void QueueStream::NoteStarted(const RunRequest& run, Entry& entry) {
  in_flight_.Add(run);
  entry.in_flight = true;
  result_bytes_ += entry.result_bytes;
}

std::unique_ptr<QueueStream::Waiting> QueueStream::NextTurn() {
  if (waiting_ == nullptr || !MayStart(waiting_->run, *waiting_->entry)) return nullptr;
  NoteStarted(waiting_->run, *waiting_->entry);
  return std::move(waiting_);
}

void QueueStream::Complete(const std::shared_ptr<Entry>& entry, absl::Status status,
                           std::shared_ptr<const Outcome> outcome) {
  call_.state().CountRejection(call_.tenant(), status);
  if (entry->sampled_at != absl::InfiniteFuture()) OfferSpan(*entry, status, outcome.get());
  const bool held = outcome != nullptr && outcome->result.more_of_chain;
  std::unique_ptr<Waiting> next;
  std::unique_ptr<v1::Batch> batch;  // destroyed after the lock is let go
  std::shared_ptr<const Charge> batch_charge;
  {
    absl::MutexLock lock(&mutex_);
    batch_charge = std::move(entry->batch_charge);
    batch = std::move(entry->batch);
    entry->done = true;
    ++done_;
    entry->status = std::move(status);
    entry->outcome = std::move(outcome);
    entry->ticket = RunTicket();
    if (std::exchange(entry->in_flight, false)) {
      in_flight_.Remove();
      if (!entry->status.ok()) result_bytes_ -= std::exchange(entry->result_bytes, 0);
    } else {
      entry->result_bytes = 0;  // it was never started
    }
    next = NextTurn();
    held_ = held && held_ < kMostHeld ? held_ + 1 : 0;
  }
  Drive();
  if (next != nullptr) TakeTurn(std::move(next));
}

void QueueStream::OfferSpan(const Entry& entry, const absl::Status& status,
                            const Outcome* outcome) {
  std::vector<SpanPart> parts;
  if (outcome != nullptr && outcome->program != nullptr) {
    parts = PartsOf(*outcome->program, outcome->device, outcome->result);
  }
  call_.OfferBatch(entry.sequence, entry.sampled_at, status, std::move(parts));
}

void QueueStream::TakeTurn(std::unique_ptr<Waiting> waiting) {
  bool cut = false;
  {
    absl::MutexLock lock(&mutex_);
    cut = broken_;
  }
  // Batches in a lane's queue are answered when their session ends; this one was in none.
  const bool ended = !session_->Use(call_.state().clock().Now()).ok();
  if (cut) {
    Drop(*waiting, Cut());
  } else if (ended) {
    Drop(*waiting,
         WithReason(absl::CancelledError("the session ended before this program started; nothing "
                                         "ran"),
                    reason::kSessionGone));
  } else {
    Start(waiting->entry, std::move(waiting->run));
  }
  Advance();
  AcceptOn();
}

void QueueStream::Drop(Waiting& waiting, absl::Status status) {
  waiting.run.chain->Fail(waiting.run.chain_position);
  waiting.run.buffers.reset();
  Complete(waiting.entry, std::move(status), nullptr);
}

void QueueStream::CancelAll() {
  std::vector<RunTicket> tickets;
  std::unique_ptr<Waiting> waiting;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& entry : entries_) {
      if (!entry->done) tickets.push_back(entry->ticket);
    }
    waiting = std::move(waiting_);
  }
  for (const RunTicket& ticket : tickets) ticket.Cancel(Cut());
  if (waiting != nullptr) Drop(*waiting, Cut());
}

}  // namespace gemmd::server
