// Grouped matmuls of groups of many rows whose finish is a gate: two CTAs of a cluster have half of
// a block of the result's columns each, and tell each other their rows' largest magnitudes.

#include "kernels/cuda/sm90/sm90_fp8_ragged.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig kConfig = {.family = GemmFamily::kTiled,
                                .rows = 192,
                                .cols = kGateCols,
                                .groups = 3,
                                .stages = 4,
                                .share_rows = 2,
                                .ragged = true,
                                .gates = true};
constexpr GemmConfig kConfigs[kTileLists] = {kConfig, kConfig};
using Family = RaggedFamily<kConfig>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8RaggedGate = {
    kFp8GateName, kConfigs, kUnitRows / kConfig.share_rows, Family::Prepare, Family::Launch};

}  // namespace gemmd::kernels::cuda
