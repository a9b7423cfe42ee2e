// Grouped BF16.

#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"

namespace gemmd::kernels::cuda {
namespace {

using Configs = DirectGroupedConfigs<Mma::kBf16, true>;

}  // namespace

extern const DirectGroupedEntry kSm90Bf16GroupedFinishing = {kBf16GroupedName, Configs::kWide,
                                                             Configs::kThin,   Configs::kCount,
                                                             Configs::Prepare, Configs::Launch};

}  // namespace gemmd::kernels::cuda
