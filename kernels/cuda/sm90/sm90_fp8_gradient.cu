// Gradients of weights in FP8: both sides with a scale for each row and 128 of k, E4M3 and E5M2 in
// any mix.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/sm90_fp8_gradient.cuh"
#include "kernels/cuda/sm90/sm90_gradient_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

// In the order of gradient.h's numbers.
constexpr GemmConfig kConfigs[] = {
    OfGradient(Tiled(128, 128, 4)),
    OfGradient(Tiled(256, 128, 3)),
    OfGradient(SharingRows(Tiled(256, 128, 3))),
};
constexpr int kCount = sizeof(kConfigs) / sizeof(kConfigs[0]);

// By which sides are E5M2.
template <int kIndex, bool kAE5M2, bool kBE5M2>
constexpr GradientFunctions Of() {
  constexpr GemmConfig C = kConfigs[kIndex];
  return FunctionsOf<C, Fp8Gradient<Encode(C), kAE5M2, kBE5M2>>();
}
template <int kIndex>
constexpr GradientFunctions OfTypes(int types) {
  constexpr GradientFunctions kTable[] = {Of<kIndex, false, false>(), Of<kIndex, false, true>(),
                                          Of<kIndex, true, false>(), Of<kIndex, true, true>()};
  return kTable[types];
}
GradientFunctions Find(int config, GradientTypes types) {
  static_assert(kCount == 3, "a row for each");
  const int both = types.a_e5m2 * 2 + types.b_e5m2;
  return config == 0 ? OfTypes<0>(both) : config == 1 ? OfTypes<1>(both) : OfTypes<2>(both);
}
using Table = GradientTable<Find>;

}  // namespace

extern const GradientFamilyEntry kSm90Fp8Gradient = {
    kGradientName, kConfigs, kCount, Table::Prepare, Table::Launch, Table::MaxClusters};

}  // namespace gemmd::kernels::cuda
