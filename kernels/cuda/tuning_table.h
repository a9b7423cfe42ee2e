// TuningTable: what gemm_bench measured on one kind of GPU with one set of kernels. A JSON file in
// deploy/tuning/, written by `gemm_bench --tune`, read once at start.

#ifndef GEMMD_KERNELS_CUDA_TUNING_TABLE_H_
#define GEMMD_KERNELS_CUDA_TUNING_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// What was measured for one shape, best first. Keyed by (m, n, k) and the output type.
struct TunedKernel {
  std::string kernel;
  double seconds = 0;
};
struct TuningKey {
  int64_t m = 0, n = 0, k = 0;
  DType out = DType::kBF16;
  friend bool operator==(const TuningKey&, const TuningKey&) = default;
  template <class H>
  friend H AbslHashValue(H h, const TuningKey& key) {
    return H::combine(std::move(h), key.m, key.n, key.k, key.out);
  }
};

class TuningTable {
 public:
  TuningTable() = default;

  // FAILED_PRECONDITION, naming both sides and the remedy (run `gemm_bench --tune`), when the file
  // was made on another GPU model or for kernels of another source hash. INVALID_ARGUMENT, with
  // the place, when it is not such a file.
  static absl::StatusOr<TuningTable> Parse(std::string_view json, std::string_view gpu_model);
  static absl::StatusOr<TuningTable> Load(const std::string& path, std::string_view gpu_model);
  std::string Serialize(std::string_view gpu_model, std::string_view driver,
                        std::string_view date) const;

  void Set(const TuningKey& key, std::vector<TunedKernel> kernels);
  // The entry of exactly this key, else of the nearest m with the same n, k and output (TurboMind's
  // rule: weights have few shapes, batches have all): the next larger m up to twice the asked one.
  // Empty when there is neither; `exact` tells which.
  absl::Span<const TunedKernel> Find(const TuningKey& key, bool* exact) const;
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  absl::flat_hash_map<TuningKey, std::vector<TunedKernel>> entries_;
};

// FNV-1a over the sources of kernels and config tables, taken when they were compiled: a table is
// only as good as the kernels it measured.
std::string_view KernelSourceHash();

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_TUNING_TABLE_H_
