// E4M3 with scales by row.

#include "kernels/cuda/sm90/direct/sm90_fp8_row_configs.h"
#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/stream/sm90_fp8_stream_configs.h"
#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Fp8RowTiledFinishing =
    MakeFamily<Mma::kFp8Row, kFp8RowTiledConfigs, kLength<kFp8RowTiledConfigs>, FinishingEntry>(
        "sm90_fp8row_tiled");
extern const GemmFamilyEntry kSm90Fp8RowSkinnyFinishing =
    MakeFamily<Mma::kFp8Row, kFp8RowSkinnyConfigs, kLength<kFp8RowSkinnyConfigs>, FinishingEntry>(
        "sm90_fp8row_skinny");
extern const StreamFamilyEntry kSm90Fp8RowStreamFinishing =
    MakeStreamFamily<Mma::kFp8Row, kFp8StreamConfigs, FinishingStreamEntry>("sm90_fp8row_stream");

}  // namespace gemmd::kernels::cuda
