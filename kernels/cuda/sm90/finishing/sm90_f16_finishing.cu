// F16.

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const GemmFamilyEntry kSm90F16TiledFinishing =
    MakeFamily<Mma::kF16, kDirectTiled, kLength<kDirectTiled>, FinishingEntry>("sm90_f16_tiled");
extern const GemmFamilyEntry kSm90F16SkinnyFinishing =
    MakeFamily<Mma::kF16, kDirectSkinny, kLength<kDirectSkinny>, FinishingEntry>("sm90_f16_skinny");
extern const StreamFamilyEntry kSm90F16StreamFinishing =
    MakeStreamFamily<Mma::kF16, kDirectStream, FinishingStreamEntry>("sm90_f16_stream");

}  // namespace gemmd::kernels::cuda
