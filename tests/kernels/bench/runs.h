// Runs that the bench's tests share.

#pragma once

#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// A right result of `us`, with a floor of 8 us and tensor-wise cuBLASLt at 12 us.
ShapeResult Timed(const Shape& shape, double us);

// Timed 64x4096x7168 and 4096x4096x7168, a refused shape and a skipped one.
RunResult SmallRun();

}  // namespace gemmd::kernels::bench
