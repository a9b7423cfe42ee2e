// The compute-bound family's kernels for results that need alpha, a bias or ReLU.

#include "kernels/cuda/sm90/sm90_fp8_family.cuh"
#include "kernels/cuda/sm90/tiled/sm90_fp8_tiled_configs.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Fp8TiledAdjusting =
    MakeFamily<Mma::kFp8Block, kTiledConfigs, kLength<kTiledConfigs>, AdjustingEntry>(
        "sm90_fp8_tiled");

}  // namespace gemmd::kernels::cuda
