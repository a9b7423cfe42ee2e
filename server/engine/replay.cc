#include "server/engine/replay.h"

#include <utility>

#include "server/engine/reason.h"

namespace gemmd::server {
namespace {

std::shared_ptr<const Outcome> Refused() {
  auto outcome = std::make_shared<Outcome>();
  outcome->result.status = WithReason(
      absl::InvalidArgumentError("this op_id came with another program before; an op_id names one "
                                 "run and its retries, draw a fresh one for each program"),
      reason::kOpIdReused);
  return outcome;
}

}  // namespace

int64_t ReplayCache::Bytes(const Outcome& outcome) {
  int64_t bytes = 0;
  for (const auto& output : outcome.outputs) bytes += static_cast<int64_t>(output->size());
  return bytes;
}

bool ReplayCache::Begin(const OpId& op_id, OutcomeDone& done) {
  std::shared_ptr<const Outcome> outcome;
  {
    absl::MutexLock lock(&mutex_);
    auto [it, fresh] = entries_.try_emplace(op_id.id);
    Entry& entry = it->second;
    if (fresh) {
      entry.program_digest = op_id.program_digest;
      return true;
    }
    if (entry.program_digest != op_id.program_digest) {
      outcome = Refused();
    } else if (entry.outcome == nullptr) {
      entry.waiting.push_back(std::move(done));
      return false;
    } else {
      outcome = entry.outcome;
    }
  }
  std::move(done)(std::move(outcome), /*replayed=*/true);
  return false;
}

void ReplayCache::Finish(const OpId& op_id, std::shared_ptr<const Outcome> outcome,
                         int max_entries) {
  std::vector<OutcomeDone> waiting;
  {
    absl::MutexLock lock(&mutex_);
    auto it = entries_.find(op_id.id);
    if (it == entries_.end()) return;
    waiting = std::move(it->second.waiting);
    if (!outcome->result.status.ok()) {
      entries_.erase(it);
    } else {
      it->second.outcome = outcome;
      bytes_ += Bytes(*outcome);
      finished_.push_back(op_id.id);
      while (!finished_.empty() &&
             (static_cast<int>(finished_.size()) > max_entries || bytes_ > kMaxBytes)) {
        auto oldest = entries_.find(finished_.front());
        bytes_ -= Bytes(*oldest->second.outcome);
        entries_.erase(oldest);
        finished_.pop_front();
      }
    }
  }
  if (!waiting.empty() && absl::IsCancelled(outcome->result.status)) {
    // The first caller is gone and took the program with it; those who retried for it did not
    // cancel anything.
    auto again = std::make_shared<Outcome>();
    again->result.status = WithReason(
        absl::UnavailableError("the call that came first with this op_id was cancelled; try again"),
        reason::kCancelled);
    outcome = std::move(again);
  }
  for (OutcomeDone& done : waiting) std::move(done)(outcome, /*replayed=*/true);
}

}  // namespace gemmd::server
