// From a KGroupedMatmulOp's `groups` to the columns of each group, on the host. The same rules hold
// on the device.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/data_fault.h"
#include "kernels/op.h"

namespace gemmd::kernels {

struct GroupColumns {
  int64_t first = 0;
  int64_t k = 0;
};

// What each group's first column has to be a multiple of: kScaleBlock where a or b has a scale for
// each 128 of k, which two groups cannot share; else 1.
int64_t ColumnStep(const KGroupedMatmulOp& op);

// One entry for each group. `index` has as many numbers as the layout asks for. The first
// impossible one goes to `fault`, and the groups that it concerns have k = 0.
std::vector<GroupColumns> ReadColumns(const KGroupedMatmulOp& op, const int32_t* index,
                                      DataFault& fault);

// The matmul that one group poses.
MatmulOp MatmulOf(const KGroupedMatmulOp& op, int64_t group, const GroupColumns& columns);

// A k-grouped matmul without its memory, as Explain is asked about it.
struct KGroupedProblem {
  int64_t groups = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;  // of all groups together
  GroupLayout layout = GroupLayout::kEnds;
  DType a = DType::kF32;
  DType b = DType::kF32;
  DType out = DType::kF32;
  ScaleGranularity a_granularity = ScaleGranularity::kNone;
  ScaleGranularity b_granularity = ScaleGranularity::kNone;
  bool has_c = false;  // d itself, with a beta of 1
};

// Of tensors as they lie best: row-major, scales of 1x128 by columns, groups from multiples of 128
// on where ends tell them. INVALID_ARGUMENT when no tensors make it a valid one.
absl::StatusOr<KGroupedMatmulOp> OpOf(const KGroupedProblem& problem);

// "groups=8 along k, ends m=512 n=4096 k=7168 a=e4m3/1x128 b=e5m2/1x128 d=f32 +c"
std::string ToString(const KGroupedProblem& problem);

}  // namespace gemmd::kernels
