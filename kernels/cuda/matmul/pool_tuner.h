// PoolTuner: a GemmPool's Tuner. Keeps what was measured as a table of its own, which it lays over
// the one that the pool was made with.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/matmul/pool.h"
#include "kernels/cuda/tuning/tuning_table.h"
#include "kernels/tuner.h"

namespace gemmd::kernels::cuda {

class PoolTuner final : public Tuner {
 public:
  // A model's weights have some hundred shapes with ten numbers of rows each.
  static constexpr int kMostShapes = 4096;

  struct Hooks {
    std::function<absl::StatusOr<std::shared_ptr<const Program>>(absl::Span<const Op>)> compile;
    std::function<void()> changed;  // choices follow other times from now on
  };
  // `pool` outlives it. `driver` is told in exports.
  PoolTuner(GemmPool& pool, DeviceTraits device, std::string driver, Hooks hooks);

  absl::StatusOr<std::vector<std::string>> Contenders(const TuneShape& shape,
                                                      int most) const override;
  absl::StatusOr<KernelChoice> Current(const TuneShape& shape) const override;
  int64_t flush_bytes() const override;
  absl::StatusOr<std::shared_ptr<const Program>> CompileTrial(absl::Span<const Op> ops) override;
  absl::Status Keep(absl::Span<const ShapeTimes> measured) override ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t generation() const override { return generation_.load(std::memory_order_acquire); }
  int kept_shapes() const override ABSL_LOCKS_EXCLUDED(mutex_);
  std::string Export(std::string_view date) const override ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<TuningImport> Import(std::string_view text) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Change(TuningTable table) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  GemmPool& pool_;
  const DeviceTraits device_;
  const std::string driver_;
  Hooks hooks_;
  mutable absl::Mutex mutex_;
  TuningTable table_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_{1};
};

}  // namespace gemmd::kernels::cuda
