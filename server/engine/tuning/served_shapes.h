// ServedShapes: which shapes a lane's programs have multiplied, and how their kernels were chosen.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "kernels/tuner.h"

namespace gemmd::server {

// Thread-safe.
class ServedShapes {
 public:
  // Shapes that are told apart. Calls of further ones are counted in the totals alone.
  static constexpr size_t kMost = 1024;

  struct Totals {
    int64_t tuned = 0;     // measured on this device, or imported
    int64_t shipped = 0;   // by the table that came with the version
    int64_t modelled = 0;  // by the cost model
  };

  // One run of a program.
  void Add(absl::Span<const kernels::ShapeCalls> calls) ABSL_LOCKS_EXCLUDED(mutex_);
  // The `most` called ones, most first.
  std::vector<kernels::TuneShape> Most(size_t most) const ABSL_LOCKS_EXCLUDED(mutex_);
  Totals totals() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<kernels::TuneShape, int64_t> calls_ ABSL_GUARDED_BY(mutex_);
  Totals totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::server
