// BF16: the tables of sm90_direct_family.cuh.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Bf16Tiled =
    MakeFamily<Mma::kBf16, kDirectTiled>("sm90_bf16_tiled", &kSm90Bf16TiledFinishing,
                                         &kSm90Bf16TiledAlongRows, &kSm90Bf16TiledBothAlongRows);
extern const GemmFamilyEntry kSm90Bf16Skinny =
    MakeFamily<Mma::kBf16, kDirectSkinny>("sm90_bf16_skinny", &kSm90Bf16SkinnyFinishing,
                                          &kSm90Bf16SkinnyAlongRows, &kSm90Bf16SkinnyBothAlongRows);

}  // namespace gemmd::kernels::cuda
