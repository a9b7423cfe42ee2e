// FailedLines: how many failed calls a second the log tells of, for each tenant: one whose calls
// all fail must neither fill the log nor hide another's. gemmd_requests_total has all of them.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/engine/observe/line_budget.h"

namespace gemmd::server {

class Tenant;

// Thread-safe.
class FailedLines {
 public:
  static constexpr int kPerSecond = 50;

  // Nothing when a line of this tenant's is to be left out, else how many were since its last one.
  std::optional<int64_t> Take(const Tenant& tenant, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<LineBudget>& budget = budgets_[&tenant];
    if (budget == nullptr) budget = std::make_unique<LineBudget>(kPerSecond);
    return budget->Take(now);
  }

 private:
  absl::Mutex mutex_;
  absl::flat_hash_map<const Tenant*, std::unique_ptr<LineBudget>> budgets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
