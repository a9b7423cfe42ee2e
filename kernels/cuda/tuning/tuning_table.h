// TuningTable: what gemm_bench measured on one kind of GPU. A JSON file in deploy/tuning/, written
// by `gemm_bench --tune`, read once at start. Each kernel's times hold as long as its machine code
// is the one that was measured (code_hash.h).

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/problem.h"

namespace gemmd::kernels::cuda {

// What was measured for one shape, best first. Keyed by (m, n, k) and the types of the result and
// of the operands.
struct TunedKernel {
  std::string kernel;
  double seconds = 0;
};
struct TuningKey {
  int64_t m = 0, n = 0, k = 0;
  DType out = DType::kBF16;
  DType in = DType::kE4M3;
  friend bool operator==(const TuningKey&, const TuningKey&) = default;
  // m last: the next larger m of the same weights is the next key.
  friend bool operator<(const TuningKey& x, const TuningKey& y) {
    return std::tie(x.in, x.n, x.k, x.out, x.m) < std::tie(y.in, y.n, y.k, y.out, y.m);
  }
};

class TuningTable {
 public:
  TuningTable() = default;

  // Names of kernels that this build lacks are kept: who chooses passes them over. Times of kernels
  // whose code is another than was measured are left out, and so is a shape of which no kernel near
  // the fastest is left; stale() tells. FAILED_PRECONDITION, naming both sides and the remedy (run
  // `gemm_bench --tune`), when nothing is left, or the file was made on another GPU model.
  // INVALID_ARGUMENT, with the place, when it is not such a file. NOT_FOUND when Load cannot open
  // it.
  static absl::StatusOr<TuningTable> Parse(std::string_view json, std::string_view gpu_model);
  static absl::StatusOr<TuningTable> Load(const std::string& path, std::string_view gpu_model);
  // The model of GPU that the file names. Errors as Load's of a file that is none.
  static absl::StatusOr<std::string> ModelOf(const std::string& path);
  // What Parse takes, one shape a line in the order of keys. Times are kept to the nanosecond.
  std::string Serialize(std::string_view gpu_model, std::string_view driver,
                        std::string_view date) const;

  // Of each shape the kernels that all tables with that shape have, by the mean of their times: a
  // kernel's time differs by some percent from process to process, with the memory it was given.
  static TuningTable Mean(absl::Span<const TuningTable> tables);

  // What either has; of a shape that both have, the mean of the kernels that both measured, or,
  // when they have none in common, the times of `x`.
  static TuningTable Merge(const TuningTable& x, const TuningTable& y);
  // What `tuned` has takes the place of what is here, and Hit::tuned tells.
  void Overlay(const TuningTable& tuned);
  // Leaves out kernels that this build lacks, and shapes that have no others; how many times.
  int DropUnknown();

  // Replaces the entry; `kernels` in any order. None removes it.
  void Set(const TuningKey& key, std::vector<TunedKernel> kernels);
  // The entry of exactly this key, else of the nearest m with the same n, k and types (TurboMind's
  // rule: weights have few shapes, batches have all): the next larger m up to twice the asked one.
  // No kernels when there is neither; `key` tells which entry it is.
  struct Hit {
    TuningKey key;
    absl::Span<const TunedKernel> kernels;  // best first; valid until the table changes
    bool tuned = false;                     // of what was laid over the table
  };
  Hit Find(const TuningKey& key) const;
  int size() const { return static_cast<int>(entries_.size()); }
  // Empty when all that was read is here; else what was left out, why, and the remedy.
  const std::string& stale() const { return stale_; }

 private:
  absl::btree_map<TuningKey, std::vector<TunedKernel>> entries_;
  absl::btree_set<TuningKey> tuned_;  // keys of entries_ that an Overlay brought
  std::string stale_;
};

}  // namespace gemmd::kernels::cuda
