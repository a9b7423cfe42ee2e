// FP16: the tables of sm90_direct_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90F16Tiled = MakeFamily<Mma::kF16, kDirectTiled>("sm90_f16_tiled");
extern const GemmFamilyEntry kSm90F16Skinny =
    MakeFamily<Mma::kF16, kDirectSkinny>("sm90_f16_skinny");

}  // namespace gemmd::kernels::cuda
