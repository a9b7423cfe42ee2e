// Grouped INT8 with block scales: the kernels of FP8's, with S32 chains of 128 of k.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_pairs.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_ragged.cuh"

namespace gemmd::kernels::cuda {
namespace {

// Up to 64 rows, with the weights on WGMMA's row side; others. In the order of grouped.h's numbers.
constexpr GemmConfig kMixed[kTileLists] = {
    OfKind(Mma::kI8Block, RaggedInOneRing(Skinny(64, 128, 2, 4))),
    OfKind(Mma::kI8Block, RaggedInOneRing(Tiled(kWideRows, 256, 4))),
};
constexpr GemmConfig kUnits = OfKind(Mma::kI8Block, Storing(Ragged(Tiled(192, 128, 4))));
constexpr GemmConfig kPaired = SharingCols(kMixed[kWideTile]);
constexpr GemmConfig kOfUnits[kTileLists] = {kUnits, kUnits};
constexpr GemmConfig kOfPairs[kTileLists] = {HalfOf(kPaired), kPaired};
using Mixed = GroupedFamily<kMixed[kThinTile], kMixed[kWideTile]>;
using Units = RaggedFamily<kUnits>;
using Pairs = PairsFamily<kPaired>;

}  // namespace

extern const GroupedFamilyEntry kSm90I8BlockGrouped = {
    kI8BlockGroupedName, kMixed, kWideRows, 256, 256, Mixed::Prepare, Mixed::Launch};
extern const GroupedFamilyEntry kSm90I8BlockRagged = {
    kI8BlockGroupedName, kOfUnits,       kUnitRows,    kUnits.cols,
    kUnits.cols,         Units::Prepare, Units::Launch};
extern const GroupedFamilyEntry kSm90I8BlockPairs = {
    kI8BlockGroupedName, kOfPairs, kWideRows, kPairBox, 512, Pairs::Prepare, Pairs::Launch};

}  // namespace gemmd::kernels::cuda
