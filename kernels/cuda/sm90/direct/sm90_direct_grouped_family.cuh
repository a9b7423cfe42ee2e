// The tables of grouped BF16, FP16, INT8 and E4M3: one list for all, of which a .cu makes one
// type's.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/direct/sm90_direct_grouped.cuh"

namespace gemmd::kernels::cuda {

// `kAlongRows`: of weights that lie so.
template <Mma kMma, bool kFinishes = false, bool kAlongRows = false>
struct DirectGroupedConfigs {
  static constexpr GemmConfig Of(GemmConfig config) {
    return OfKind(kMma, kAlongRows ? AlongRows(config) : config);
  }
  // 128 rows of the weights, and up to 256 of A; by one CTA, or by two that share A's.
  static constexpr GemmConfig kWideAlone = Of(Tiled(128, 256, 4));
  static constexpr GemmConfig kWide[] = {kWideAlone, SharingCols(kWideAlone)};
  // The same weights and up to 64 rows of A.
  static constexpr GemmConfig kThinAlone = Of(Skinny(64, 128, 2, 4));
  static constexpr GemmConfig kThin[] = {kThinAlone, SharingCols(kThinAlone)};
  static constexpr int kCount = sizeof(kWide) / sizeof(kWide[0]);

  template <int I>
  using Member = DirectGroupedMember<kWide[I], kThin[I], kFinishes>;

  static cudaError_t Prepare(int config) {
    static constexpr cudaError_t (*kTable[])() = {Member<0>::Prepare, Member<1>::Prepare};
    return kTable[config]();
  }
  static cudaError_t Launch(int config, const DirectGroupedLaunch& launch, int ctas,
                            bool programmatic, cudaStream_t stream) {
    static constexpr cudaError_t (*kTable[])(const DirectGroupedLaunch&, int, bool,
                                             cudaStream_t) = {Member<0>::Launch, Member<1>::Launch};
    return kTable[config](launch, ctas, programmatic, stream);
  }
};

}  // namespace gemmd::kernels::cuda
