// Grouped INT8 with scales by row or tensor, or none: the tables of
// sm90_direct_grouped_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"

namespace gemmd::kernels::cuda {
namespace {

using Configs = DirectGroupedConfigs<Mma::kI8>;

}  // namespace

extern const DirectGroupedEntry kSm90I8Grouped = {
    kI8GroupedName,   Configs::kWide,  Configs::kThin,          Configs::kCount,
    Configs::Prepare, Configs::Launch, &kSm90I8GroupedFinishing};

}  // namespace gemmd::kernels::cuda
