// BF16: the tables of sm90_direct_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Bf16Tiled =
    DirectFamilies<Mma::kBf16>::TiledEntry("sm90_bf16_tiled");
extern const GemmFamilyEntry kSm90Bf16Skinny =
    DirectFamilies<Mma::kBf16>::SkinnyEntry("sm90_bf16_skinny");

}  // namespace gemmd::kernels::cuda
