// The ladder, side by side: every rung, the pool's own choice and cuBLASLt on one shape.

#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/bench/cuda/entries.h"
#include "kernels/bench/cuda/machine.h"
#include "kernels/bench/options.h"
#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// Rung by rung, then the choice for FP8, then the peers. Each result is held against float64 first;
// a wrong one is not timed. Those that are timed take turns. A rung that does not take `shape` is
// measured on the largest part of it that it takes, or refused with its reason. An error is the
// device's.
absl::StatusOr<std::vector<LadderRow>> BenchLadder(Machine& machine, const Options& options,
                                                   const Choosers& choosers, const Shape& shape);

}  // namespace gemmd::kernels::bench
