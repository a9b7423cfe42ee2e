// Grouped INT8 with block scales: the kernels of FP8's, with S32 chains of 128 of k.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"
#include "kernels/cuda/sm90/grouped/sm90_block_grouped_configs.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_pairs.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_ragged.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Configs = BlockGroupedConfigs<Mma::kI8Block>;
constexpr GemmConfig kUnits = OfKind(Mma::kI8Block, Storing(Ragged(Tiled(192, 128, 4))));
constexpr GemmConfig kOfUnits[kTileLists] = {kUnits, kUnits};
using Mixed = GroupedFamily<Configs::kMixed[kThinTile], Configs::kMixed[kWideTile]>;
using Units = RaggedFamily<kUnits>;
using Pairs = PairsFamily<Configs::kPair>;

}  // namespace

extern const GroupedFamilyEntry kSm90I8BlockGrouped = {kI8BlockGroupedName,
                                                       Configs::kMixed,
                                                       kWideRows,
                                                       256,
                                                       256,
                                                       Mixed::Prepare,
                                                       Mixed::Launch,
                                                       &kSm90I8BlockGroupedFinishing};
extern const GroupedFamilyEntry kSm90I8BlockRagged = {
    kI8BlockGroupedName, kOfUnits,       kUnitRows,    kUnits.cols,
    kUnits.cols,         Units::Prepare, Units::Launch};
extern const GroupedFamilyEntry kSm90I8BlockPairs = {kI8BlockGroupedName,
                                                     Configs::kPairs,
                                                     kWideRows,
                                                     kPairBox,
                                                     512,
                                                     Pairs::Prepare,
                                                     Pairs::Launch,
                                                     &kSm90I8BlockPairsFinishing};

}  // namespace gemmd::kernels::cuda
