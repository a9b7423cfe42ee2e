// FP16 by groups of rows.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Rows = DirectGroupedConfigs<Mma::kF16, true, true>;

}  // namespace

extern const DirectGroupedEntry kSm90F16GroupedAlongRows = {
    kF16GroupedName, Rows::kWide, Rows::kThin, Rows::kCount, Rows::Prepare, Rows::Launch};

}  // namespace gemmd::kernels::cuda
