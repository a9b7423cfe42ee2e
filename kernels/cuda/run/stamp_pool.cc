#include "kernels/cuda/run/stamp_pool.h"

#include <new>
#include <utility>

namespace gemmd::kernels::cuda {
namespace {

constexpr int kStampsABlock = 1024;  // 64 KiB, the least that is pinned at once

}  // namespace

absl::Status StampPool::Grow() {
  absl::StatusOr<PinnedBlock> block = pinned_.Take(kStampsABlock * sizeof(RunStamps));
  if (!block.ok()) return block.status();
  auto* stamps = new (block->data()) RunStamps[kStampsABlock]();
  for (int i = 0; i < kStampsABlock; ++i) free_.push_back(stamps + i);
  blocks_.push_back(*std::move(block));
  return absl::OkStatus();
}

absl::StatusOr<StampsRef> StampPool::Take() {
  absl::MutexLock lock(&mutex_);
  if (free_.empty()) {
    if (absl::Status status = Grow(); !status.ok()) return status;
  }
  RunStamps* const taken = free_.back();
  free_.pop_back();
  return StampsRef(taken, [this](RunStamps* back) {
    absl::MutexLock giving(&mutex_);
    free_.push_back(back);
  });
}

}  // namespace gemmd::kernels::cuda
