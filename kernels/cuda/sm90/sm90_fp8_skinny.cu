// The small-m family: weights on WGMMA's 64-row side, the batch on its columns, k split over a
// cluster so that every SM streams weights.

#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/sm90_fp8_family.cuh"
#include "kernels/cuda/sm90/sm90_fp8_skinny_configs.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Fp8Skinny =
    MakeFamily<Mma::kFp8Block, kSkinnyConfigs>("sm90_fp8_skinny", &kSm90Fp8SkinnyFinishing);

}  // namespace gemmd::kernels::cuda
