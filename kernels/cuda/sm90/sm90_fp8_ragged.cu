// Grouped matmuls in FP8 with block scales whose groups have many rows.

#include "kernels/cuda/sm90/sm90_fp8_ragged.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig kConfig = {.family = GemmFamily::kTiled,
                                .rows = 192,
                                .cols = 128,
                                .groups = 3,
                                .stages = 4,
                                .share_rows = 2,
                                .ragged = true,
                                .stores_tile = true};
constexpr GemmConfig kConfigs[kTileLists] = {kConfig, kConfig};
using Walk = GroupWalk<kConfig, RaggedTiles<kConfig>>;
using Family = GroupedKernels<Fp8Ragged<Encode(kConfig), false>, Fp8Ragged<Encode(kConfig), true>,
                              TurnNotes<kConfig, Walk>::kAt + TurnNotes<kConfig, Walk>::kBytes + 1024,
                              kConfig.threads(), kConfig.multicast()>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Ragged = {
    kFp8GroupedName, kConfigs, kUnitRows / kConfig.share_rows, Family::Prepare, Family::Launch};

}  // namespace gemmd::kernels::cuda
