// INT8 with block scales: FP8's loop with S32 chains. Of the FP8 families' configs those that were
// the fastest for one of the 44 shapes, their neighbours, and widths in between, for any rows. A
// promotion has a conversion for each FFMA and takes longer than another warpgroup's products: with
// three warpgroups there are two.

#include "kernels/cuda/sm90/direct/sm90_i8_block_configs.h"
#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90I8BlockTiled = MakeFamily<Mma::kI8Block, kI8BlockTiledConfigs>(
    "sm90_i8block_tiled", &kSm90I8BlockTiledFinishing);
extern const GemmFamilyEntry kSm90I8BlockSkinny = MakeFamily<Mma::kI8Block, kI8BlockSkinnyConfigs>(
    "sm90_i8block_skinny", &kSm90I8BlockSkinnyFinishing);

}  // namespace gemmd::kernels::cuda
