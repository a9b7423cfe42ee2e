// Grouped INT8 with scales by row or tensor, or none.

#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"

namespace gemmd::kernels::cuda {
namespace {

using Configs = DirectGroupedConfigs<Mma::kI8, true>;

}  // namespace

extern const DirectGroupedEntry kSm90I8GroupedFinishing = {kI8GroupedName,   Configs::kWide,
                                                           Configs::kThin,   Configs::kCount,
                                                           Configs::Prepare, Configs::Launch};

}  // namespace gemmd::kernels::cuda
