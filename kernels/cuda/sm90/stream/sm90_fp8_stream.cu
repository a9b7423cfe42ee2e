// E4M3 with block scales by stream-k.

#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/stream/sm90_fp8_stream_configs.h"
#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {

extern const StreamFamilyEntry kSm90Fp8Stream = MakeStreamFamily<Mma::kFp8Block, kFp8StreamConfigs>(
    "sm90_fp8_stream", &kSm90Fp8StreamFinishing);

}  // namespace gemmd::kernels::cuda
