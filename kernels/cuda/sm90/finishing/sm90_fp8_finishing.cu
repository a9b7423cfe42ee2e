// E4M3 with block scales.

#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/sm90_fp8_skinny_configs.h"
#include "kernels/cuda/sm90/stream/sm90_fp8_stream_configs.h"
#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"
#include "kernels/cuda/sm90/tiled/sm90_fp8_tiled_configs.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Fp8TiledFinishing =
    MakeFamily<Mma::kFp8Block, kTiledConfigs, kLength<kTiledConfigs>, FinishingEntry>(
        "sm90_fp8_tiled");
extern const GemmFamilyEntry kSm90Fp8SkinnyFinishing =
    MakeFamily<Mma::kFp8Block, kSkinnyConfigs, kLength<kSkinnyConfigs>, FinishingEntry>(
        "sm90_fp8_skinny");
extern const StreamFamilyEntry kSm90Fp8StreamFinishing =
    MakeStreamFamily<Mma::kFp8Block, kFp8StreamConfigs, FinishingStreamEntry>("sm90_fp8_stream");

}  // namespace gemmd::kernels::cuda
