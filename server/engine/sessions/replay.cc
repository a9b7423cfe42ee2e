#include "server/engine/sessions/replay.h"

#include <utility>

#include "server/engine/reason.h"
#include "server/engine/sessions/host_bytes.h"

namespace gemmd::server {
namespace {

// Of an answer without a program and outputs.
constexpr int64_t kEntryBytes = 512;

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
  int64_t bytes = kEntryBytes;
  if (outcome.program != nullptr) bytes += HostBytesOf(*outcome.program);
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

void ReplayCache::ForgetOldest() {
  auto oldest = entries_.find(finished_.front());
  bytes_ -= Bytes(*oldest->second.outcome);
  entries_.erase(oldest);
  finished_.pop_front();
}

std::optional<Charge> ReplayCache::MakeRoom(int64_t bytes, Tenant& tenant) {
  const size_t most = tenant.limits().idempotency_entries;
  while (!finished_.empty() && (finished_.size() >= most || bytes_ + bytes > kMaxBytes)) {
    ForgetOldest();
  }
  std::optional<Charge> charge;
  while (bytes <= kMaxBytes && !(charge = tenant.TryRememberedBytes(bytes)) && !finished_.empty()) {
    ForgetOldest();
  }
  return charge;
}

void ReplayCache::Finish(const OpId& op_id, std::shared_ptr<const Outcome> outcome,
                         Tenant& tenant) {
  std::vector<OutcomeDone> waiting;
  {
    absl::MutexLock lock(&mutex_);
    auto it = entries_.find(op_id.id);
    if (it == entries_.end()) return;
    waiting = std::move(it->second.waiting);
    const int64_t bytes = Bytes(*outcome);
    std::optional<Charge> charge;
    if (outcome->result.status.ok()) charge = MakeRoom(bytes, tenant);
    it = entries_.find(op_id.id);  // where it is once others have gone
    if (!charge) {
      entries_.erase(it);
    } else {
      it->second.outcome = outcome;
      it->second.charge = *std::move(charge);
      bytes_ += bytes;
      finished_.push_back(op_id.id);
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
