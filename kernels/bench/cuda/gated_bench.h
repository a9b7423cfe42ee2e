// The gated kernel against the speed of copying.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// silu(gate) * up of BF16 [rows, 2n] in halves to E4M3 with m-major scales of 1x128, cold. Timed
// only if it gives the bits of the kernel that takes anything; `block` of the result is "gated".
absl::StatusOr<QuantizeResult> BenchGated(Machine& machine, int64_t rows, int64_t n, int repeats);

}  // namespace gemmd::kernels::bench
