// OpenBLAS, loaded at run time: what the daemon's matmuls are measured against on a CPU.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace gemmd::bench {

// Seconds of one cblas_sgemm of n x n x n on random data, called directly: the median of `repeats`
// after one to warm up. NOT_FOUND when libopenblas.so.0 cannot be loaded. Its threads stay, so call
// it in a process of its own.
absl::StatusOr<double> SgemmSeconds(int64_t n, int repeats);

}  // namespace gemmd::bench
