// Grouped matmuls in FP8 with block scales: thin tiles of few rows, with the weights on WGMMA's row
// side, and wide ones, with A's rows there.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"

namespace gemmd::kernels::cuda {
namespace {

// In the order of grouped.h's numbers. 128 x 256 has what 256 x 128 has of results and of loads,
// and wastes less of a group's last rows.
constexpr GemmConfig kConfigs[kTileLists] = {
    RaggedInOneRing(Skinny(64, 128, 2, 4)),
    RaggedInOneRing(Tiled(kWideRows, 256, 4)),
};
using Family = GroupedFamily<kConfigs[kThinTile], kConfigs[kWideTile]>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Grouped = {
    kFp8GroupedName, kConfigs, kWideRows, 256, 256, Family::Prepare, Family::Launch};

}  // namespace gemmd::kernels::cuda
