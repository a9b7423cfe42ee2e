#include "server/engine/sessions/recent_programs.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "server/engine/text.h"

namespace gemmd::server {

std::shared_ptr<const Plan> RecentPrograms::Find(std::string_view ops) const {
  absl::MutexLock lock(&mutex_);
  const auto found = plans_.find(Text(ops));
  return found == plans_.end() ? nullptr : found->second;
}

bool RecentPrograms::ComeAgain(std::string_view ops) {
  if (ops.size() > kMostBytes) return false;
  const uint64_t hash = absl::HashOf(ops);
  absl::MutexLock lock(&mutex_);
  if (std::find(seen_.begin(), seen_.end(), hash) != seen_.end()) return true;
  seen_[next_] = hash;
  next_ = (next_ + 1) % kMost;
  return false;
}

void RecentPrograms::Keep(std::string_view ops, std::shared_ptr<const Plan> plan) {
  decltype(plans_) forgotten;  // destroyed after the lock is let go
  absl::MutexLock lock(&mutex_);
  if (plans_.size() >= kMost) forgotten.swap(plans_);
  plans_.insert_or_assign(std::string(ops), std::move(plan));
}

}  // namespace gemmd::server
