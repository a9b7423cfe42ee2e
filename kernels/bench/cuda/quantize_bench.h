// The quantize kernels against the speed of copying.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/result.h"
#include "kernels/cuda/ops/quantize.h"

namespace gemmd::kernels::bench {

// BF16 [rows, k] of random normal values to E4M3 or INT8, cold, `block` kRow, k1x128 (m-major
// scales) or k128x128. A wrong result is not timed.
absl::StatusOr<QuantizeResult> BenchQuantize(Machine& machine, int64_t rows, int64_t k,
                                             cuda::QuantizeBlock block, bool int8, int repeats);

}  // namespace gemmd::kernels::bench
