// Grouped FP16.

#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"

namespace gemmd::kernels::cuda {
namespace {

using Configs = DirectGroupedConfigs<Mma::kF16, true>;

}  // namespace

extern const DirectGroupedEntry kSm90F16GroupedFinishing = {kF16GroupedName,  Configs::kWide,
                                                            Configs::kThin,   Configs::kCount,
                                                            Configs::Prepare, Configs::Launch};

}  // namespace gemmd::kernels::cuda
