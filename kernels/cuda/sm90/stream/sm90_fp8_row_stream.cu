// E4M3 with scales by row by stream-k.

#include "kernels/cuda/sm90/finishing/finishing.h"
#include "kernels/cuda/sm90/stream/sm90_fp8_stream_configs.h"
#include "kernels/cuda/sm90/stream/sm90_stream_family.cuh"

namespace gemmd::kernels::cuda {

extern const StreamFamilyEntry kSm90Fp8RowStream =
    MakeStreamFamily<Mma::kFp8Row, kFp8StreamConfigs>("sm90_fp8row_stream",
                                                      &kSm90Fp8RowStreamFinishing);

}  // namespace gemmd::kernels::cuda
