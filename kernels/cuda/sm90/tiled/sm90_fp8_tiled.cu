// The compute-bound family: A's rows on WGMMA's row side, two math warpgroups a CTA.

#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/sm90_fp8_family.cuh"
#include "kernels/cuda/sm90/tiled/sm90_fp8_tiled_configs.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Fp8Tiled =
    MakeFamily<Mma::kFp8Block, kTiledConfigs>("sm90_fp8_tiled", &kSm90Fp8TiledFinishing);

}  // namespace gemmd::kernels::cuda
