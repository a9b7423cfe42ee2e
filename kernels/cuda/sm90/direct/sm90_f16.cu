// FP16: the tables of sm90_direct_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90F16Tiled =
    DirectFamilies<Mma::kF16>::TiledEntry("sm90_f16_tiled");
extern const GemmFamilyEntry kSm90F16Skinny =
    DirectFamilies<Mma::kF16>::SkinnyEntry("sm90_f16_skinny");

}  // namespace gemmd::kernels::cuda
