// Grouped matmuls in FP8 with block scales: thin tiles of few rows, with the weights on WGMMA's row
// side, and wide ones, with A's rows there.

#include "kernels/cuda/sm90/finishing/grouped_finishing.h"
#include "kernels/cuda/sm90/grouped/sm90_block_grouped_configs.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Configs = BlockGroupedConfigs<Mma::kFp8Block>;
using Family = GroupedFamily<Configs::kMixed[kThinTile], Configs::kMixed[kWideTile]>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Grouped = {
    kFp8GroupedName, Configs::kMixed,          kWideRows, 256, 256, Family::Prepare,
    Family::Launch,  &kSm90Fp8GroupedFinishing};

}  // namespace gemmd::kernels::cuda
