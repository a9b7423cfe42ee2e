// INT8 with scales by row.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90I8TiledFinishing =
    MakeFamily<Mma::kI8, kDirectTiled, kLength<kDirectTiled>, FinishingEntry>("sm90_i8_tiled");
extern const GemmFamilyEntry kSm90I8SkinnyFinishing =
    MakeFamily<Mma::kI8, kDirectSkinny, kDirectSkinnyWithScales, FinishingEntry>("sm90_i8_skinny");

}  // namespace gemmd::kernels::cuda
