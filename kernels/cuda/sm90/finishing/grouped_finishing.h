// The grouped kernels for what NeedsFinish(), as finishing.h has dense ones. Of those for block
// scales two come so: that for groups of any size, and that of CTAs in pairs.

#pragma once

#include "kernels/cuda/sm90/launch/grouped.h"
#include "kernels/cuda/sm90/launch/grouped_direct_launch.h"

namespace gemmd::kernels::cuda {

extern const GroupedFamilyEntry kSm90Fp8GroupedFinishing;
extern const GroupedFamilyEntry kSm90Fp8PairsFinishing;
extern const GroupedFamilyEntry kSm90I8BlockGroupedFinishing;
extern const GroupedFamilyEntry kSm90I8BlockPairsFinishing;

extern const DirectGroupedEntry kSm90Bf16GroupedFinishing;
extern const DirectGroupedEntry kSm90F16GroupedFinishing;
extern const DirectGroupedEntry kSm90I8GroupedFinishing;
extern const DirectGroupedEntry kSm90Fp8RowGroupedFinishing;

}  // namespace gemmd::kernels::cuda
