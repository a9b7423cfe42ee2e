// Grouped matmuls whose finish is a gate: the same walk, over tiles of 128 gates and their ups.

#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"

namespace gemmd::kernels::cuda {
namespace {

// In the order of grouped.h's numbers.
constexpr GemmConfig kConfigs[kTileLists] = {
    {.family = GemmFamily::kSkinny,
     .rows = 2 * kGateCols,
     .cols = 64,
     .groups = 2,
     .stages = 4,
     .ragged = true,
     .gates = true,
     .shares_ring = true},
    {.family = GemmFamily::kTiled,
     .rows = 128,
     .cols = 2 * kGateCols,
     .groups = 2,
     .stages = 4,
     .ragged = true,
     .gates = true,
     .shares_ring = true},
};
using Family = GroupedFamily<kConfigs[kThinTile], kConfigs[kWideTile]>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8GroupedGate = {
    kFp8GateName, kConfigs, kWideRows, kGateCols, 256, Family::Prepare, Family::Launch};

}  // namespace gemmd::kernels::cuda
