// Grouped INT8 with block scales.

#include "kernels/cuda/sm90/finishing/grouped_finishing.h"
#include "kernels/cuda/sm90/grouped/sm90_block_grouped_configs.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_pairs.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Configs = BlockGroupedConfigs<Mma::kI8Block>;
using Mixed = GroupedFamily<Configs::kMixed[kThinTile], Configs::kMixed[kWideTile], true>;
using Pairs = PairsFamily<Configs::kPair, true>;

}  // namespace

extern const GroupedFamilyEntry kSm90I8BlockGroupedFinishing = {
    kI8BlockGroupedName, Configs::kMixed, kWideRows, 256, 256, Mixed::Prepare, Mixed::Launch};
extern const GroupedFamilyEntry kSm90I8BlockPairsFinishing = {
    kI8BlockGroupedName, Configs::kPairs, kWideRows, kPairBox, 512, Pairs::Prepare, Pairs::Launch};

}  // namespace gemmd::kernels::cuda
