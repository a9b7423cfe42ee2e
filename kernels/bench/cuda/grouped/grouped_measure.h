// One case's time, beside a plain read and, if asked for, beside the kernels that were not chosen.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/bench/cuda/grouped/grouped_workload.h"
#include "kernels/bench/cuda/machine.h"

namespace gemmd::kernels::bench {

// How each case is measured.
struct GroupedMethod {
  int repeats = 12;
  int config = -1;  // as GroupedWorkload::Bind takes it, like `grain`
  int grain = cuda::kGrainThatFills;
  int again = 0;  // so many more runs have to give the same bits
  bool all_kernels = false;
  uint64_t seed = 1;
};

struct GroupedTime {
  GroupedBenchCase c;
  std::string trouble;
  double us = 0, floor_us = 0, difference = 0;
  std::vector<double> kernels_us;  // by RowsKernel, where all are timed
  int chosen = 0;                  // likewise

  double tflops() const { return us > 0 ? c.flops() / us * 1e-6 : 0; }
  bool ok() const {
    return trouble.empty() && (c.wanted_us == 0 || us <= c.wanted_us) &&
           (c.wanted_tflops == 0 || tflops() >= c.wanted_tflops) &&
           (c.wanted_read == 0 || us <= c.wanted_read * floor_us);
  }
};

// Fills `time` in for time.c. INTERNAL when a result is wrong, or its bits change.
absl::Status MeasureGrouped(const GroupedMethod& method, Machine& machine, GroupedWorkload& work,
                            GroupedTime& time);

}  // namespace gemmd::kernels::bench
