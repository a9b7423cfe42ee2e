// What a person reads while a run goes on: a row a shape, then the means.

#pragma once

#include <string>

#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

std::string TableHeader(DType dtype);
// One line, or two with a message; `best_tensorwise_tflops` as known so far. With a sweep, the
// `listed` fastest variants follow, a line each.
std::string TableRow(const ShapeResult& result, double best_tensorwise_tflops, int listed);
// All of --quantize.
std::string QuantizeTable(const RunResult& run);
std::string SummaryTable(const RunResult& run);

}  // namespace gemmd::kernels::bench
