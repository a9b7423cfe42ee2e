// Parts: what a program whose ops belong to several lanes is cut into. Each part is a run of ops of
// one lane, in the caller's order; ops of different lanes that touch the same bytes, one of them
// writing, keep that order because the later one's part waits for the earlier one's.
//
// Parts are cut behind an op that another lane waits for and in front of one that waits for another
// lane, and nowhere else: so a lane goes on with what concerns nobody while a copy is under way.
// A part waits for parts in front of it alone, so no order of lanes makes them wait in a circle.

#ifndef GEMMD_SERVER_ENGINE_SCHEDULING_PARTS_H_
#define GEMMD_SERVER_ENGINE_SCHEDULING_PARTS_H_

#include <vector>

#include "absl/types/span.h"
#include "kernels/op.h"

namespace gemmd::server {

struct OpRun {
  int lane = 0;
  std::vector<int> ops;    // ascending
  std::vector<int> after;  // parts of other lanes that end before it begins; ascending
};

// `lanes` has a number for each op. Ops have passed ValidateOps. Parts of one lane run in order.
std::vector<OpRun> CutIntoParts(absl::Span<const kernels::Op> ops, absl::Span<const int> lanes);

}  // namespace gemmd::server

#endif  // GEMMD_SERVER_ENGINE_SCHEDULING_PARTS_H_
