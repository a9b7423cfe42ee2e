// RowsSummary: a run of the models' suites by ranges of rows: how far the choice and the cost model
// are from the pool's best, and both from cuBLASLt.

#pragma once

#include <string>
#include <vector>

#include "kernels/bench/models.h"
#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// How much longer than the pool's best kernel, as a share of its time: 0.03 is 3 %. Of no shapes
// all are 0.
struct Regret {
  int shapes = 0;
  double mean = 0;
  double p99 = 0;
  double most = 0;
};

// Ratios are geometric means of the other's time over ours, 0 where there is none.
struct RowsSummary {
  RowRange rows;
  int shapes = 0;  // with a right result
  double tensorwise_ratio = 0;
  double block_ratio = 0;
  double least_block_ratio = 0;       // the shape on which cuBLASLt is the furthest ahead
  double model_tensorwise_ratio = 0;  // of the model's kernel, in sweeps
  Regret choice;                      // likewise
  Regret model;                       // likewise
};

// A line for each of kRowRanges that has a shape, and one for all.
std::vector<RowsSummary> SummarizeRows(const RunResult& run);
std::string RowsTable(const RunResult& run);

}  // namespace gemmd::kernels::bench
