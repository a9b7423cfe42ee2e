// Grouped matmuls in FP8 with block scales whose groups have many rows.

#include "kernels/cuda/sm90/sm90_fp8_ragged.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig kConfig = {.family = GemmFamily::kTiled,
                                .rows = 192,
                                .cols = 128,
                                .groups = 3,
                                .stages = 4,
                                .ragged = true,
                                .stores_tile = true};
constexpr GemmConfig kConfigs[kTileLists] = {kConfig, kConfig};
using Walk = GroupWalk<kConfig, RaggedTiles<kConfig>>;
using Family = GroupedKernels<Fp8Ragged<Encode(kConfig), false>, Fp8Ragged<Encode(kConfig), true>,
                              StoreNotes<kConfig, Walk>::kAt + StoreNotes<kConfig, Walk>::kBytes + 1024,
                              kConfig.threads()>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Ragged = {kFp8GroupedName, kConfigs, Family::Prepare,
                                                  Family::Launch};

}  // namespace gemmd::kernels::cuda
