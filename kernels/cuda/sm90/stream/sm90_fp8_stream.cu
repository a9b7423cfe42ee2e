// E4M3 with block scales by stream-k.

#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {

// Large tiles, whose products take nearly all of shared memory's time: how many there are is no
// matter here.
constexpr GemmConfig kFp8StreamConfigs[] = {
    Tiled(128, 192, 5),
    Tiled(192, 128, 4),
};

extern const StreamFamilyEntry kSm90Fp8Stream =
    MakeStreamFamily<Mma::kFp8Block, kFp8StreamConfigs>("sm90_fp8_stream");

}  // namespace gemmd::kernels::cuda
