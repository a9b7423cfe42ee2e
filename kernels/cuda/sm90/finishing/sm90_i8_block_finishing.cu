// INT8 with block scales.

#include "kernels/cuda/sm90/direct/sm90_i8_block_configs.h"
#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90I8BlockTiledFinishing =
    MakeFamily<Mma::kI8Block, kI8BlockTiledConfigs, kLength<kI8BlockTiledConfigs>, FinishingEntry>(
        "sm90_i8block_tiled");
extern const GemmFamilyEntry kSm90I8BlockSkinnyFinishing =
    MakeFamily<Mma::kI8Block, kI8BlockSkinnyConfigs, kLength<kI8BlockSkinnyConfigs>,
               FinishingEntry>("sm90_i8block_skinny");

}  // namespace gemmd::kernels::cuda
