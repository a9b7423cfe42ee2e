// FP16: the tables of sm90_direct_family.cuh.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90F16Tiled =
    MakeFamily<Mma::kF16, kDirectTiled>("sm90_f16_tiled", &kSm90F16TiledFinishing,
                                        &kSm90F16TiledAlongRows, &kSm90F16TiledBothAlongRows);
extern const GemmFamilyEntry kSm90F16Skinny =
    MakeFamily<Mma::kF16, kDirectSkinny>("sm90_f16_skinny", &kSm90F16SkinnyFinishing,
                                         &kSm90F16SkinnyAlongRows, &kSm90F16SkinnyBothAlongRows);

}  // namespace gemmd::kernels::cuda
