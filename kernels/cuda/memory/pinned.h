// PinnedPool: host memory that the device copies to and from by itself, and that its kernels reach
// at the same address. Blocks are used again, since pinning takes as long as copying megabytes.
// Each device has a pool of its own, whose memory is the node's that the device hangs on, unless
// that is full; so no two devices wait for one lock, and two of a node need not share.

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/device/fence.h"
#include "kernels/cuda/device/host_node.h"

namespace gemmd::kernels::cuda {

class PinnedPool;

// Move-only; goes back to its pool on destruction, when no copy may use it any more.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  PinnedBlock(PinnedBlock&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), data_(other.data_), log2_(other.log2_) {}
  PinnedBlock& operator=(PinnedBlock&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(log2_, other.log2_);
    return *this;
  }
  ~PinnedBlock();

  std::byte* data() const { return data_; }
  // Leaves it pinned for good: its pool is gone.
  void Abandon() { pool_ = nullptr; }

 private:
  friend class PinnedPool;
  PinnedBlock(PinnedPool* pool, std::byte* data, int log2)
      : pool_(pool), data_(data), log2_(log2) {}

  PinnedPool* pool_ = nullptr;  // null: empty
  std::byte* data_ = nullptr;
  int log2_ = 0;
};

// Thread-safe. Outlives its blocks.
class PinnedPool {
 public:
  // What lies unused beyond this is unpinned.
  static constexpr int64_t kMaxIdleBytes = 256 << 20;

  // `node` is the device's; without one its memory lies where the thread is that asks for it.
  PinnedPool(int ordinal, Fence& fence, HostNode node = {})
      : ordinal_(ordinal), fence_(fence), node_(std::move(node)) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // A block of at least `bytes`, which are positive, at a multiple of 4096; with whatever was there
  // before. RESOURCE_EXHAUSTED when the machine will not pin so much.
  absl::StatusOr<PinnedBlock> Take(int64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  const HostNode& node() const { return node_; }
  // What is pinned, in blocks that are taken and in idle ones.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  friend class PinnedBlock;
  static constexpr int kMinLog2 = 16;
  static constexpr int kMaxLog2 = 40;

  absl::StatusOr<std::byte*> Pin(size_t bytes);
  void Give(std::byte* data, int log2) ABSL_LOCKS_EXCLUDED(mutex_);

  const int ordinal_;
  Fence& fence_;
  const HostNode node_;
  std::atomic<int64_t> bytes_ = 0;
  absl::Mutex mutex_;
  std::array<std::vector<std::byte*>, kMaxLog2 + 1> idle_ ABSL_GUARDED_BY(mutex_);  // by log2
  int64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd::kernels::cuda
