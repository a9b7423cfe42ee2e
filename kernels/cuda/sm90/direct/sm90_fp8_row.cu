// E4M3 with a scale for each row, for all, or none. Its kernels multiply as those of block scales
// do, and promote with an addition where those have an FFMA. No scales beside the accumulators
// leave room for skinny tiles of up to 200 columns.

#include "kernels/cuda/sm90/direct/sm90_fp8_row_configs.h"
#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Fp8RowTiled =
    MakeFamily<Mma::kFp8Row, kFp8RowTiledConfigs>("sm90_fp8row_tiled", &kSm90Fp8RowTiledFinishing);
extern const GemmFamilyEntry kSm90Fp8RowSkinny = MakeFamily<Mma::kFp8Row, kFp8RowSkinnyConfigs>(
    "sm90_fp8row_skinny", &kSm90Fp8RowSkinnyFinishing);

}  // namespace gemmd::kernels::cuda
