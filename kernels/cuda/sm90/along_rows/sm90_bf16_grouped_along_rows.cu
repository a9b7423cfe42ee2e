// BF16 by groups of rows.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Rows = DirectGroupedConfigs<Mma::kBf16, true, true>;

}  // namespace

extern const DirectGroupedEntry kSm90Bf16GroupedAlongRows = {
    kBf16GroupedName, Rows::kWide, Rows::kThin, Rows::kCount, Rows::Prepare, Rows::Launch};

}  // namespace gemmd::kernels::cuda
