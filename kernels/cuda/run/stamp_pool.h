// StampPool: a stream's RunStamps, used again and again.

#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/memory/pinned.h"
#include "kernels/cuda/run/run_stamps.h"

namespace gemmd::kernels::cuda {

// Go back to their pool with the last copy. Shared: a graph has its own, and whoever waits for a
// run of it holds them too.
using StampsRef = std::shared_ptr<RunStamps>;

// Thread-safe. All are back when it is destroyed.
class StampPool {
 public:
  // `pinned` outlives the pool.
  explicit StampPool(PinnedPool& pinned) : pinned_(pinned) {}
  StampPool(const StampPool&) = delete;
  StampPool& operator=(const StampPool&) = delete;

  // Fails when no memory can be pinned.
  absl::StatusOr<StampsRef> Take() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status Grow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  PinnedPool& pinned_;
  absl::Mutex mutex_;
  std::vector<PinnedBlock> blocks_ ABSL_GUARDED_BY(mutex_);
  std::vector<RunStamps*> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::kernels::cuda
