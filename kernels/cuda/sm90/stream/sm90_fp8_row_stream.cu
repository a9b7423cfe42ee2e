// E4M3 with scales by row by stream-k.

#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {

// As those of block scales.
constexpr GemmConfig kFp8RowStreamConfigs[] = {
    Tiled(128, 192, 5),
    Tiled(192, 128, 4),
};

extern const StreamFamilyEntry kSm90Fp8RowStream =
    MakeStreamFamily<Mma::kFp8Row, kFp8RowStreamConfigs>("sm90_fp8row_stream");

}  // namespace gemmd::kernels::cuda
