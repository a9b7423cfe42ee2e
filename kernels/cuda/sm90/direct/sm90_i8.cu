// INT8: the tables of sm90_direct_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90I8Tiled =
    MakeFamily<Mma::kI8, kDirectTiled>("sm90_i8_tiled", &kSm90I8TiledFinishing);
extern const GemmFamilyEntry kSm90I8Skinny =
    MakeFamily<Mma::kI8, kDirectSkinny, kDirectSkinnyWithScales>("sm90_i8_skinny",
                                                                 &kSm90I8SkinnyFinishing);

}  // namespace gemmd::kernels::cuda
