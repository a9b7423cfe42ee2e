// FP16 by stream-k: the table of sm90_direct_stream_family.cuh.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_stream_family.cuh"
#include "kernels/cuda/sm90/finishing/finishing.h"

namespace gemmd::kernels::cuda {

extern const StreamFamilyEntry kSm90F16Stream = MakeStreamFamily<Mma::kF16, kDirectStream>(
    "sm90_f16_stream", &kSm90F16StreamFinishing, &kSm90F16StreamAlongRows,
    &kSm90F16StreamBothAlongRows);

}  // namespace gemmd::kernels::cuda
