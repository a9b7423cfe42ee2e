// Grouped matmuls that no kernel was tuned for: experts of public models, on one GPU or
// on each of several, with 1 to 8192 tokens, any routing and every front. What is changed for the
// models of one half is judged on those of the other.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/bench/cuda/grouped/grouped_case.h"
#include "kernels/bench/models.h"

namespace gemmd::kernels::bench {

// `count` of them, drawn from `seed`. Ranges of tokens take turns, so that a run that is cut is as
// mixed as a whole one. The first case is one large group, which tells the rate that the run
// reaches.
std::vector<GroupedBenchCase> BroadCases(Half half, int count, uint64_t seed);

}  // namespace gemmd::kernels::bench
