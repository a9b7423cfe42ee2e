// Groups that lie behind one another along a dimension, as offsets or ends tell them: rows of a
// grouped matmul, columns of a k-grouped one.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/data_fault.h"
#include "kernels/op.h"

namespace gemmd::kernels {

struct GroupRange {
  int64_t first = 0;
  int64_t size = 0;
};

struct GroupNumbers {
  GroupLayout layout = GroupLayout::kOffsets;  // or kEnds
  int32_t groups = 0;
  int32_t extent = 0;  // of the dimension
  int64_t alignment = 1;
  int32_t step = 1;  // groups with a size start at its multiples
};

// One range for each group. `index` has as many numbers as the layout asks for. The first
// impossible one goes to `fault`, and the groups that it concerns are empty.
std::vector<GroupRange> ReadRanges(const GroupNumbers& numbers, const int32_t* index,
                                   DataFault& fault);

// Keeps the fault that was found first.
void ReportFirst(DataFault& fault, const DataFault& found);

}  // namespace gemmd::kernels
