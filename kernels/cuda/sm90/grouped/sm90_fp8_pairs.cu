// Grouped matmuls in FP8 with block scales whose groups have many rows, by CTAs in pairs: without a
// rest, which takes registers and shared memory from whole tiles; with one; and with a gate as the
// finish.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/finishing/grouped_finishing.h"
#include "kernels/cuda/sm90/grouped/sm90_block_grouped_configs.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_pairs.cuh"

namespace gemmd::kernels::cuda {
namespace {

using Configs = BlockGroupedConfigs<Mma::kFp8Block>;
constexpr GemmConfig kWithout = Configs::kPair;
constexpr GemmConfig kWith = TakingRest(kWithout);
constexpr GemmConfig kGate = Gating(kWith);
constexpr GemmConfig kRest[kTileLists] = {HalfOf(kWith), kWith};
constexpr GemmConfig kGated[kTileLists] = {HalfOf(kGate), kGate};
using Plain = PairsFamily<kWithout>;
using Rest = PairsFamily<kWith>;
using Gated = PairsFamily<kGate>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Pairs = {
    kFp8GroupedName, Configs::kPairs,        kWideRows, kPairBox, 512, Plain::Prepare,
    Plain::Launch,   &kSm90Fp8PairsFinishing};
extern const GroupedFamilyEntry kSm90Fp8PairsRest = {
    kFp8GroupedName, kRest, kWideRows, kPairBox, 512, Rest::Prepare, Rest::Launch};
extern const GroupedFamilyEntry kSm90Fp8PairsGate = {
    kFp8GateName, kGated, kWideRows, kPairBox, 512, Gated::Prepare, Gated::Launch};

}  // namespace gemmd::kernels::cuda
