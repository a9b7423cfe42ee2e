// FP16, A along its rows as well.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90F16TiledBothAlongRows =
    MakeFamily<Mma::kF16, kDirectTiled, kLength<kDirectTiled>, BothAlongRowsEntry>(
        "sm90_f16_tiled");
extern const GemmFamilyEntry kSm90F16SkinnyBothAlongRows =
    MakeFamily<Mma::kF16, kDirectSkinny, kLength<kDirectSkinny>, BothAlongRowsEntry>(
        "sm90_f16_skinny");
extern const StreamFamilyEntry kSm90F16StreamBothAlongRows =
    MakeStreamFamily<Mma::kF16, kDirectStream, BothAlongRowsStreamEntry>("sm90_f16_stream");

}  // namespace gemmd::kernels::cuda
