// Runs: two views of one shape walked together as few, long, straight runs of elements.

#pragma once

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/tensor.h"

namespace gemmd::kernels::cpu {

// Dimensions that lie behind one another in both views are one. The innermost is dst's smallest
// stride, so that writes stream. Elements, outermost first; absent dimensions have extent 1.
struct Runs {
  std::array<int64_t, kMaxRank> extents{1, 1, 1};
  std::array<int64_t, kMaxRank> src_strides{};
  std::array<int64_t, kMaxRank> dst_strides{};

  int64_t count() const { return extents[0] * extents[1] * extents[2]; }
};

Runs PlanRuns(const Dims& shape, const Dims& src_strides, const Dims& dst_strides);

// Calls fn(src offset, dst offset, n), in elements, for every run or piece of one, on all workers,
// until the run is stopped. Inside a run, elements are src_strides[2] and dst_strides[2] apart.
void ForEachRun(const Runs& runs, const RunContext& context,
                absl::FunctionRef<void(int64_t, int64_t, int64_t)> fn);

}  // namespace gemmd::kernels::cpu
