// OutputMemory: pinned memory for the outputs of a device's programs, so that a reply is sent from
// where the device wrote it: copying half a megabyte out of pinned memory takes 65 us.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/memory/pinned.h"
#include "kernels/host_memory.h"

namespace gemmd::kernels::cuda {

// Thread-safe. What it gave may outlive it, as a reply that gRPC has yet to send: such memory stays
// pinned until the process ends.
class OutputMemory {
 public:
  // Smaller ones the device does not write by itself (cuda_program.cc).
  static constexpr int64_t kFewestBytes = 256 << 10;
  // Pinned at once; what is more lies on the heap. Sessions keep outputs for retries.
  static constexpr int64_t kMostBytes = 512 << 20;

  explicit OutputMemory(PinnedPool& pool) : pool_(std::make_shared<Pool>(&pool)) {}
  ~OutputMemory();
  OutputMemory(const OutputMemory&) = delete;
  OutputMemory& operator=(const OutputMemory&) = delete;

  std::unique_ptr<HostMemory> Allocate(int64_t bytes);

 private:
  struct Pool {
    explicit Pool(PinnedPool* pinned) : pinned(pinned) {}
    absl::Mutex mutex;
    PinnedPool* pinned ABSL_GUARDED_BY(mutex);  // null once it is gone
    int64_t bytes ABSL_GUARDED_BY(mutex) = 0;   // given and not back
  };
  class Pinned;

  const std::shared_ptr<Pool> pool_;
};

}  // namespace gemmd::kernels::cuda
