// Grouped matmuls in FP8 with block scales whose groups have many rows.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/grouped/sm90_fp8_ragged.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig kConfig = Storing(Ragged(Tiled(192, 128, 4)));
constexpr GemmConfig kConfigs[kTileLists] = {kConfig, kConfig};
using Family = RaggedFamily<kConfig>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Ragged = {kFp8GroupedName, kConfigs,     kUnitRows,
                                                  kConfig.cols,    kConfig.cols, Family::Prepare,
                                                  Family::Launch};

}  // namespace gemmd::kernels::cuda
