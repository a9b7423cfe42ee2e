// INT8: the tables of sm90_direct_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90I8Tiled = DirectFamilies<Mma::kI8>::TiledEntry("sm90_i8_tiled");
extern const GemmFamilyEntry kSm90I8Skinny =
    DirectFamilies<Mma::kI8>::SkinnyEntry("sm90_i8_skinny");

}  // namespace gemmd::kernels::cuda
