// Grouped E4M3 with scales by row or tensor, or none: the tables of sm90_direct_grouped_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"

namespace gemmd::kernels::cuda {
namespace {

using Configs = DirectGroupedConfigs<Mma::kFp8Row>;

}  // namespace

extern const DirectGroupedEntry kSm90Fp8RowGrouped = {kFp8RowGroupedName,
                                                      Configs::kWide,
                                                      Configs::kThin,
                                                      Configs::kCount,
                                                      Configs::Prepare,
                                                      Configs::Launch,
                                                      &kSm90Fp8RowGroupedFinishing};

}  // namespace gemmd::kernels::cuda
