// Grouped matmuls in FP8 with block scales whose groups have many rows, by CTAs in pairs; and the
// same with a gate as the finish.

#include "kernels/cuda/sm90/grouped/sm90_fp8_pairs.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Paired(bool gates) {
  return {.family = GemmFamily::kTiled,
          .rows = kWideRows,
          .cols = 256,
          .groups = 2,
          .stages = 4,
          .share_cols = 2,
          .ragged = true,
          .gates = gates,
          .shares_ring = true};
}
// The first one's boxes of B are those of half tiles.
constexpr GemmConfig kPlain[kTileLists] = {HalfOf(Paired(false)), Paired(false)};
constexpr GemmConfig kGated[kTileLists] = {HalfOf(Paired(true)), Paired(true)};
using Plain = PairsFamily<Paired(false)>;
using Gated = PairsFamily<Paired(true)>;

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Pairs = {
    kFp8GroupedName, kPlain, kWideRows, kPairBox, 512, Plain::Prepare, Plain::Launch};
extern const GroupedFamilyEntry kSm90Fp8PairsGate = {
    kFp8GateName, kGated, kWideRows, kPairBox, 512, Gated::Prepare, Gated::Launch};

}  // namespace gemmd::kernels::cuda
