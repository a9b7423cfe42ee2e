// FP16.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90F16TiledAlongRows =
    MakeFamily<Mma::kF16, kDirectTiled, kLength<kDirectTiled>, AlongRowsEntry>("sm90_f16_tiled");
extern const GemmFamilyEntry kSm90F16SkinnyAlongRows =
    MakeFamily<Mma::kF16, kDirectSkinny, kLength<kDirectSkinny>, AlongRowsEntry>("sm90_f16_skinny");
extern const StreamFamilyEntry kSm90F16StreamAlongRows =
    MakeStreamFamily<Mma::kF16, kDirectStream, AlongRowsStreamEntry>("sm90_f16_stream");

}  // namespace gemmd::kernels::cuda
