// BF16 by groups of rows and, for gradients of weights, of columns: the tables of
// sm90_direct_grouped_family.cuh and sm90_direct_gradient_family.cuh.

#include "kernels/cuda/sm90/direct/sm90_direct_gradient_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_grouped_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Rows = DirectGroupedConfigs<Mma::kBf16>;
using Columns = DirectGradientConfigs<Mma::kBf16, false>;

}  // namespace

extern const DirectGroupedEntry kSm90Bf16Grouped = {kBf16GroupedName, Rows::kWide,   Rows::kThin,
                                                    Rows::kCount,     Rows::Prepare, Rows::Launch};
extern const GradientFamilyEntry kSm90Bf16Gradient = {
    kBf16GradientName,       Columns::kConfigs,      Columns::kCount,
    Columns::Table::Prepare, Columns::Table::Launch, Columns::Table::MaxClusters};

}  // namespace gemmd::kernels::cuda
