// Grouped FP16: the tables of sm90_direct_grouped_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Configs = DirectGroupedConfigs<Mma::kF16>;

}  // namespace

extern const DirectGroupedEntry kSm90F16Grouped = {kF16GroupedName,  Configs::kWide,
                                                   Configs::kThin,   Configs::kCount,
                                                   Configs::Prepare, Configs::Launch};

}  // namespace gemmd::kernels::cuda
