// What the cost model knows of each kernel and shape of a sweep, beside the time that was measured:
// what kernels/bench/fit_model.py fits the model's correction to.

#pragma once

#include <string>

#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// Comma-separated, with a header: the fitting half's model that has the weights, m, n, k, kernel,
// us, and model_correction.h's features; a line for each time in the pools of `run` (--pool-times).
// Kernels that this build lacks are left out.
std::string FeatureTable(const RunResult& run);

}  // namespace gemmd::kernels::bench
