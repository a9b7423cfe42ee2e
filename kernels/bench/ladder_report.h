// The ladder of a run, for people: a table, and the same as SVG.

#pragma once

#include <string>

#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// A part for each shape, a row a rung: its rate, that as a multiple of the rung's in front of it,
// and its share of cuBLASLt's rate for the same type.
std::string LadderTable(const RunResult& run);

// Horizontal bars of TFLOP/s, one a rung, a part for each shape.
std::string LadderChart(const RunResult& run);

}  // namespace gemmd::kernels::bench
