// Checker: is a result right? Holds a shape's float64 reference on the device.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/bench/cuda/device_buffer.h"
#include "kernels/bench/cuda/reference.h"
#include "kernels/bench/cuda/timer.h"
#include "kernels/bench/cuda/workload.h"

namespace gemmd::kernels::bench {

struct Errors {
  double calc_diff = 0;      // 1 - 2 sum(xy) / sum(x^2 + y^2)
  double rel_error = 0;      // ||x - y|| / ||y||
  uint64_t stray_words = 0;  // words beside D that were written
  bool ok() const;           // NaN is not ok
};

Errors ErrorsOf(const ErrorSums& sums, uint64_t stray_words);

class Checker {
 public:
  // For BF16 results: rounding alone costs 1.4e-6 and 1.7e-3.
  static constexpr double kMaxCalcDiff = 1e-5;
  static constexpr double kMaxRelError = 5e-3;
  // Larger products are checked on a sample of evenly spaced rows.
  static constexpr double kMaxReferenceFlops = 2e12;

  explicit Checker(cudaStream_t stream) : stream_(stream) {}

  // Computes the reference of what `workload` holds.
  absl::Status Prepare(const Workload& workload);
  int64_t checked_rows() const { return rows_.rows; }

  // Poisons D, calls, and compares D with the reference and what lies beside D with the poison.
  absl::StatusOr<Errors> Check(Workload& workload, const Call& call);

  // Poisons and calls `runs` times; the number of 16-bit words of D, summed over the runs, that
  // differ from those of the first.
  absl::StatusOr<uint64_t> CountChanging(Workload& workload, const Call& call, int runs);

 private:
  struct Counters {
    ErrorSums sums;
    unsigned long long words = 0;
  };
  absl::Status PoisonAndCall(Workload& workload, const Call& call);
  absl::Status ClearCounters();
  absl::StatusOr<Counters> ReadCounters();
  Counters* counters() const { return counters_.as<Counters>(); }

  cudaStream_t stream_;
  DeviceBuffer reference_, first_, counters_;
  ReferenceRows rows_{};
};

}  // namespace gemmd::kernels::bench
