// BF16, A along its rows as well.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Bf16TiledBothAlongRows =
    MakeFamily<Mma::kBf16, kDirectTiled, kLength<kDirectTiled>, BothAlongRowsEntry>(
        "sm90_bf16_tiled");
extern const GemmFamilyEntry kSm90Bf16SkinnyBothAlongRows =
    MakeFamily<Mma::kBf16, kDirectSkinny, kLength<kDirectSkinny>, BothAlongRowsEntry>(
        "sm90_bf16_skinny");
extern const StreamFamilyEntry kSm90Bf16StreamBothAlongRows =
    MakeStreamFamily<Mma::kBf16, kDirectStream, BothAlongRowsStreamEntry>("sm90_bf16_stream");

}  // namespace gemmd::kernels::cuda
