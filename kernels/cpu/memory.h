// The CPU backend's memory: heap blocks for small device allocations, anonymous mappings for large
// ones (freeing gives them back to the system at once), memfds for what clients map too.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace gemmd::kernels::cpu {

// Bytes in use on a device against its limit. Thread-safe; outlives every Memory charged to it.
class Budget {
 public:
  Budget(std::string device, int64_t limit_bytes)
      : device_(std::move(device)), limit_bytes_(limit_bytes) {}

  // RESOURCE_EXHAUSTED when `bytes` more would pass the limit.
  absl::Status Take(int64_t bytes);
  void Return(int64_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  const std::string device_;
  const int64_t limit_bytes_;
  std::atomic<int64_t> used_bytes_{0};
};

// The contracts of Backend::Allocate and Backend::ImportShared. What is imported is charged like
// what is allocated: it pins this much of the machine while it lives.
absl::StatusOr<std::unique_ptr<Memory>> AllocateMemory(Budget& budget, int64_t size_bytes,
                                                       MemoryKind kind);
absl::StatusOr<std::unique_ptr<Memory>> ImportMemory(Budget& budget, int fd, int64_t size_bytes);

}  // namespace gemmd::kernels::cpu
