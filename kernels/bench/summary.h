// Means over groups of shapes. A ratio is the other's time over ours: above 1 we are faster.

#pragma once

#include <string>
#include <vector>

#include "kernels/bench/result.h"

namespace gemmd::kernels::bench {

// Geometric means over the shapes where both sides were measured, 0 where there is none; the share
// of the memory floor is an arithmetic mean.
struct Group {
  std::string name;  // "m<=128", "m=512", "m>=4096", "8192x8192x8192", "all"
  int shapes = 0;    // with a right result
  double share_of_floor = 0;
  double block_ratio = 0;
  double tensorwise_ratio = 0;
  double bf16_ratio = 0;
  // Of sweeps: time of the selector's and of the model's kernel over the pool's best; above 1 is
  // lost.
  double choice_ratio = 0;
  double model_ratio = 0;
};

struct Summary {
  double best_tensorwise_tflops = 0;  // the practical ceiling of compute in this run
  std::vector<Group> groups;          // those with a shape
};

Summary Summarize(const RunResult& run);

// The least time a shape can take on this machine: its memory floor, or its flops at the best
// tensor-wise rate of the run if that is longer. Over our time: the percent of floor in tables.
double ShareOfFloor(const ShapeResult& result, double best_tensorwise_tflops);

}  // namespace gemmd::kernels::bench
