// FP16 by groups of rows and, for gradients of weights, of columns: the tables of
// sm90_direct_grouped_family.cuh and sm90_direct_gradient_family.cuh.

#include "kernels/cuda/sm90/along_rows/along_rows.h"
#include "kernels/cuda/sm90/direct/sm90_direct_gradient_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"

namespace gemmd::kernels::cuda {
namespace {

using Rows = DirectGroupedConfigs<Mma::kF16>;
using Columns = DirectGradientConfigs<Mma::kF16>;

}  // namespace

extern const DirectGroupedEntry kSm90F16Grouped = {kF16GroupedName,
                                                   Rows::kWide,
                                                   Rows::kThin,
                                                   Rows::kCount,
                                                   Rows::Prepare,
                                                   Rows::Launch,
                                                   &kSm90F16GroupedFinishing,
                                                   &kSm90F16GroupedAlongRows};
extern const GradientFamilyEntry kSm90F16Gradient = {
    kF16GradientName,        Columns::kConfigs,      Columns::kCount,
    Columns::Table::Prepare, Columns::Table::Launch, Columns::Table::MaxClusters};

}  // namespace gemmd::kernels::cuda
