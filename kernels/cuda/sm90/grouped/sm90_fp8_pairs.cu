// Grouped matmuls in FP8 with block scales whose groups have many rows, by CTAs in pairs: without a
// rest, which takes registers and shared memory from whole tiles; with one; and with a gate as the
// finish.

#include "kernels/cuda/sm90/grouped/sm90_fp8_pairs.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Paired(bool gates, bool takes_rest) {
  return {.family = GemmFamily::kTiled,
          .rows = kWideRows,
          .cols = 256,
          .groups = 2,
          .stages = 4,
          .share_cols = 2,
          .ragged = true,
          .gates = gates,
          .shares_ring = true,
          .takes_rest = takes_rest};
}
constexpr GemmConfig kWithout = Paired(false, false), kWith = Paired(false, true),
                     kGate = Paired(true, true);
// The first one's boxes of B are those of half tiles.
constexpr GemmConfig kPlain[kTileLists] = {HalfOf(kWithout), kWithout};
constexpr GemmConfig kRest[kTileLists] = {HalfOf(kWith), kWith};
constexpr GemmConfig kGated[kTileLists] = {HalfOf(kGate), kGate};
using Plain = PairsFamily<kWithout>;
using Rest = PairsFamily<kWith>;
using Gated = PairsFamily<kGate>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Pairs = {
    kFp8GroupedName, kPlain, kWideRows, kPairBox, 512, Plain::Prepare, Plain::Launch};
extern const GroupedFamilyEntry kSm90Fp8PairsRest = {
    kFp8GroupedName, kRest, kWideRows, kPairBox, 512, Rest::Prepare, Rest::Launch};
extern const GroupedFamilyEntry kSm90Fp8PairsGate = {
    kFp8GateName, kGated, kWideRows, kPairBox, 512, Gated::Prepare, Gated::Launch};

}  // namespace gemmd::kernels::cuda
