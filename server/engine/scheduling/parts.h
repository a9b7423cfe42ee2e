// Parts: what a program whose ops belong to several lanes is cut into. Each part is a run of ops of
// one lane, in the caller's order; ops of different lanes that touch the same bytes, one of them
// writing, keep that order because the later one's part waits for the earlier one's.
//
// Parts are cut in front of an op that waits for another lane and behind one that another lane
// waits for, and nowhere else: so a lane goes on with what concerns nobody while a copy is under
// way. Where a lane makes marks, the few ops between the two stay in the part: the mark is set in
// front of them, and a part of their own would cost the host more than they do. A part waits for
// ops in front of its first one alone, so no order of lanes makes parts wait in a circle.

#pragma once

#include <vector>

#include "absl/types/span.h"
#include "kernels/op.h"

namespace gemmd::server {

struct OpRun {
  int lane = 0;
  std::vector<int> ops;  // ascending
  // What it waits for: an op of another lane's part.
  struct Before {
    int part = 0;
    int awaited = 0;  // its place in that part's `awaited`
    friend auto operator<=>(const Before&, const Before&) = default;
  };
  std::vector<Before> after;  // ascending; one of each lane at most
  std::vector<int> awaited;   // places in `ops` of those that parts of other lanes wait for
};

// `lanes` has a number for each op; `marks` tells of each lane whether it makes marks, and none
// does that it does not name. Ops have passed ValidateOps. Parts of one lane run in order.
std::vector<OpRun> CutIntoParts(absl::Span<const kernels::Op> ops, absl::Span<const int> lanes,
                                const std::vector<bool>& marks = {});

}  // namespace gemmd::server
