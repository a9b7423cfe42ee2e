// From a GroupedMatmulOp's `groups` to the rows of each group, on the host. The same rules hold on
// the device.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/data_fault.h"
#include "kernels/op.h"

namespace gemmd::kernels {

struct GroupRows {
  int64_t item = 0;   // of a batched a
  int64_t first = 0;  // row within it
  int64_t rows = 0;
};

// One entry for each group. `index` has as many numbers as the layout asks for. The first
// impossible one goes to `fault`, and the groups that it concerns are empty.
std::vector<GroupRows> ReadGroups(const GroupedMatmulOp& op, const int32_t* index,
                                  DataFault& fault);

// The group's rows of a tensor [m, ..], or of item `rows.item` of [groups, m_max, ..].
TensorRef RowsOf(const TensorRef& tensor, const GroupedMatmulOp& op, const GroupRows& rows);
// The matmul that one group poses, without the gate; its d is the group's rows of the op's.
MatmulOp MatmulOf(const GroupedMatmulOp& op, int64_t group, const GroupRows& rows);

// "op 3 (grouped_matmul): groups[5]=900 is ...". OK for kNone.
absl::Status ToStatus(const DataFault& fault, size_t op_index, const Op& op);

}  // namespace gemmd::kernels
