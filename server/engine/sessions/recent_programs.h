// RecentPrograms: the ops that a session sends over and over, by their bytes, as plans of its own
// that no client knows of. Reading, resolving and checking the ops of one matmul takes a tenth of
// the whole call; the second time they come they are kept, and from the third on they are run as
// a plan is.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/engine/sessions/plan.h"

namespace gemmd::server {

// Thread-safe. A plan holds handles and no memory: that its buffers are still there is found out
// when it runs.
class RecentPrograms {
 public:
  static constexpr size_t kMost = 64;            // one more forgets them all
  static constexpr size_t kMostBytes = 4 << 10;  // of one program's ops

  // Null when they are not kept.
  std::shared_ptr<const Plan> Find(std::string_view ops) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether they are worth keeping: small, and here for the second time. Takes note of them.
  bool ComeAgain(std::string_view ops) ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(std::string_view ops, std::shared_ptr<const Plan> plan) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::array<uint64_t, kMost> seen_
      ABSL_GUARDED_BY(mutex_){};  // hashes of ops, the oldest at next_
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<const Plan>> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
