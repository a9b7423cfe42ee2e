// Two runs side by side: what became faster, what slower.

#pragma once

#include <string>

#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

struct Comparison {
  std::string text;     // a line a shape, then the geometric mean
  int compared = 0;     // shapes that both runs timed
  int regressions = 0;  // shapes more than kTolerance slower, or no longer right
  double speedup = 0;   // geometric mean of old time over new; 0 when nothing was compared

  static constexpr double kTolerance = 0.03;
};

// Shapes of the new run, in its order, against the first of the same sizes in the old one. Where
// both runs timed cuBLASLt tensor-wise, a second ratio takes the two machines' difference out.
Comparison Compare(const RunResult& old_run, const RunResult& new_run);

}  // namespace gemmd::kernels::bench
