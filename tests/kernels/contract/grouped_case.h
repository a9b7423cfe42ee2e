// A grouped matmul with random groups, told in any of its layouts, and the float64 that each
// group's rows are held against.

#pragma once

#include <string>
#include <vector>

#include "kernels/grouping.h"
#include "tests/kernels/contract/matmul_check.h"

namespace gemmd::kernels::contract {

struct GroupedCase {
  GroupLayout layout = GroupLayout::kOffsets;
  std::vector<int64_t> rows = {3, 0, 5};  // of each group
  int64_t n = 16;
  int64_t k = 32;
  int64_t alignment = 1;  // of kEnds
  int64_t around = 2;     // rows of nobody in front of the groups and behind them
  DType dtype = DType::kF32;
  DType out = DType::kF32;
  ScaleGranularity a_granularity = ScaleGranularity::kNone;
  ScaleGranularity b_granularity = ScaleGranularity::kNone;
  Placement a = Placement::kDense;
  Placement b = Placement::kDense;
  Placement d = Placement::kDense;
  bool bias = false;
  bool table = false;  // each group's matrix in a slot of its own
};
std::string ToString(const GroupedCase& c);

// The op, with random operands and a poisoned d, and where its groups lie.
struct GroupedScene {
  GroupedMatmulOp op;
  std::vector<GroupRows> groups;
};
GroupedScene MakeGrouped(Scene& scene, const GroupedCase& c);

// What `groups` of the op has to hold for these groups.
std::vector<int32_t> NumbersOf(const GroupedCase& c, absl::Span<const GroupRows> groups,
                               int64_t rows);
// Where groups of these sizes lie.
std::vector<GroupRows> PlaceGroups(const GroupedCase& c);

// The matmul that one group poses; its d is the group's rows of the op's.
MatmulOp MatmulOfGroup(const GroupedMatmulOp& op, int64_t group, const GroupRows& rows);
// The group's rows of a tensor [m, ..] or [groups, m_max, ..].
TensorRef RowsIn(const TensorRef& tensor, const GroupedMatmulOp& op, const GroupRows& rows);

// Fails unless the groups' rows are the only bytes of the tensor's slot that a run changed.
void ExpectOnlyGroupsWritten(const Scene& scene, const Outcome& outcome, const TensorRef& tensor,
                             const GroupedScene& grouped);

// Runs it: each group's rows within the bound, and nothing else written.
Outcome CheckGrouped(Executor& executor, Scene& scene, const GroupedScene& grouped);

}  // namespace gemmd::kernels::contract
