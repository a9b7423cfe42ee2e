// Grouped matmuls whose finish is a gate: the same walk, over tiles of 128 gates and their ups.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"

namespace gemmd::kernels::cuda {
namespace {

// In the order of grouped.h's numbers.
constexpr GemmConfig kConfigs[kTileLists] = {
    Gating(RaggedInOneRing(TwoSubTiles(Skinny(64, 2 * kGateCols, 1, 4)))),
    Gating(RaggedInOneRing(Tiled(kWideRows, 2 * kGateCols, 4))),
};
using Family = GroupedFamily<kConfigs[kThinTile], kConfigs[kWideTile]>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8GroupedGate = {
    kFp8GateName, kConfigs, kWideRows, kGateCols, 256, Family::Prepare, Family::Launch};

}  // namespace gemmd::kernels::cuda
