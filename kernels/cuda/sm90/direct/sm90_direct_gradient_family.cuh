// The tables of gradients in BF16 and FP16: one list for both, of which a .cu makes one type's.

#pragma once

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/direct/sm90_direct_gradient.cuh"
#include "kernels/cuda/sm90/sm90_gradient_family.cuh"

namespace gemmd::kernels::cuda {

template <Mma kMma>
struct DirectGradientConfigs {
  // Storing: with so few results the producer would else be one warp.
  static constexpr GemmConfig Tile(int m, int stages) {
    return OfKind(kMma, OfGradient(Storing(Tiled(m, 128, stages))));
  }
  // In the order of gradient.h's numbers.
  static constexpr GemmConfig kConfigs[] = {Tile(128, 4), Tile(256, 3), SharingRows(Tile(256, 3))};
  static constexpr int kCount = sizeof(kConfigs) / sizeof(kConfigs[0]);

  template <int kIndex>
  static constexpr GradientFunctions Of(bool along_rows) {
    constexpr GemmConfig C = kConfigs[kIndex];
    return along_rows ? FunctionsOf<C, DirectGradient<Encode(C), true>>()
                      : FunctionsOf<C, DirectGradient<Encode(C), false>>();
  }
  static GradientFunctions Find(int config, GradientTypes types) {
    static_assert(kCount == 3, "a row for each");
    const bool along_rows = types.along_rows;
    return config == 0 ? Of<0>(along_rows) : config == 1 ? Of<1>(along_rows) : Of<2>(along_rows);
  }
  using Table = GradientTable<Find>;
};

}  // namespace gemmd::kernels::cuda
