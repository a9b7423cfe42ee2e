// BF16.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90Bf16TiledFinishing =
    MakeFamily<Mma::kBf16, kDirectTiled, kLength<kDirectTiled>, FinishingEntry>("sm90_bf16_tiled");
extern const GemmFamilyEntry kSm90Bf16SkinnyFinishing =
    MakeFamily<Mma::kBf16, kDirectSkinny, kLength<kDirectSkinny>, FinishingEntry>(
        "sm90_bf16_skinny");
extern const StreamFamilyEntry kSm90Bf16StreamFinishing =
    MakeStreamFamily<Mma::kBf16, kDirectStream, FinishingStreamEntry>("sm90_bf16_stream");

}  // namespace gemmd::kernels::cuda
