// BF16 by stream-k: the table of sm90_direct_stream_family.cuh.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const StreamFamilyEntry kSm90Bf16Stream = MakeStreamFamily<Mma::kBf16, kDirectStream>(
    "sm90_bf16_stream", &kSm90Bf16StreamFinishing, &kSm90Bf16StreamAlongRows,
    &kSm90Bf16StreamBothAlongRows);

}  // namespace gemmd::kernels::cuda
