// PeerAccess: lets the programs of one GPU read and write the memory of others, over NVLink or
// PCIe.

#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kernels/backend.h"
#include "kernels/cuda/device/fence.h"

namespace gemmd::kernels::cuda {

// Thread-safe. What it has allowed stays so until the process ends.
class PeerAccess {
 public:
  PeerAccess(std::string device, int ordinal, Fence& fence)
      : device_(std::move(device)), ordinal_(ordinal), fence_(fence) {}

  // Asked for a device the first time it maps that one's memory, all of it and what it allocates
  // later; not earlier, because from then on each of its allocations is mapped twice. UNIMPLEMENTED
  // with the remedy when it is no GPU, or one whose memory this one cannot map.
  absl::Status Enable(const DeviceInfo& home) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status CannotReach(const DeviceInfo& home, std::string_view why) const;

  const std::string device_;
  const int ordinal_;
  Fence& fence_;
  absl::Mutex mutex_;
  absl::flat_hash_set<int> enabled_ ABSL_GUARDED_BY(mutex_);  // by ordinal
};

}  // namespace gemmd::kernels::cuda
