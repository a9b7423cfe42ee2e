// BF16.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Bf16TiledAlongRows =
    MakeFamily<Mma::kBf16, kDirectTiled, kLength<kDirectTiled>, AlongRowsEntry>("sm90_bf16_tiled");
extern const GemmFamilyEntry kSm90Bf16SkinnyAlongRows =
    MakeFamily<Mma::kBf16, kDirectSkinny, kLength<kDirectSkinny>, AlongRowsEntry>(
        "sm90_bf16_skinny");
extern const StreamFamilyEntry kSm90Bf16StreamAlongRows =
    MakeStreamFamily<Mma::kBf16, kDirectStream, AlongRowsStreamEntry>("sm90_bf16_stream");

}  // namespace gemmd::kernels::cuda
