// A run as a picture: percent of the floor by shape, ours beside the peers, as SVG.

#pragma once

#include <string>

#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// Horizontal bars, one group a timed shape, in the run's order, parted where m changes. The floor
// is ShareOfFloor's: the same for all bars of a group.
std::string Chart(const RunResult& run);

}  // namespace gemmd::kernels::bench
