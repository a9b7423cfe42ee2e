#include "kernels/cuda/memory/output_memory.h"

#include <utility>

namespace gemmd::kernels::cuda {

class OutputMemory::Pinned final : public HostMemory {
 public:
  Pinned(std::shared_ptr<Pool> pool, PinnedBlock block, int64_t bytes)
      : HostMemory(block.data(), bytes, /*device_writes=*/true),
        pool_(std::move(pool)),
        block_(std::move(block)) {}
  ~Pinned() override {
    absl::MutexLock lock(&pool_->mutex);
    pool_->bytes -= static_cast<int64_t>(size());
    if (pool_->pinned != nullptr) {
      block_ = PinnedBlock();
    } else {
      block_.Abandon();
    }
  }

 private:
  const std::shared_ptr<Pool> pool_;
  PinnedBlock block_;
};

OutputMemory::~OutputMemory() {
  absl::MutexLock lock(&pool_->mutex);
  pool_->pinned = nullptr;
}

std::unique_ptr<HostMemory> OutputMemory::Allocate(int64_t bytes) {
  if (bytes < kFewestBytes) return HeapMemory::Of(bytes);
  PinnedPool* pinned = nullptr;
  {
    absl::MutexLock lock(&pool_->mutex);
    if (pool_->bytes + bytes > kMostBytes) return HeapMemory::Of(bytes);
    pool_->bytes += bytes;
    pinned = pool_->pinned;
  }
  absl::StatusOr<PinnedBlock> block = pinned->Take(bytes);
  if (block.ok()) return std::make_unique<Pinned>(pool_, *std::move(block), bytes);
  absl::MutexLock lock(&pool_->mutex);
  pool_->bytes -= bytes;
  return HeapMemory::Of(bytes);  // the machine pins no more
}

}  // namespace gemmd::kernels::cuda
