// The tables of BF16, FP16 and INT8: one list for all, of which a .cu makes one type's two
// families.

#ifndef GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_FAMILY_CUH_
#define GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_FAMILY_CUH_

#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {

// Tables of one operand kind. Without promotion a warpgroup has room for 64 x 256 results; of
// 128 x 192 some spill.
template <Mma kMma>
struct DirectConfigs {
  static constexpr GemmConfig Tiled(int m, int n, int stages) {
    return {.family = GemmFamily::kTiled,
            .mma = kMma,
            .rows = m,
            .cols = n,
            .groups = m % 192 == 0 ? 3 : 2,
            .stages = stages};
  }
  static constexpr GemmConfig Skinny(int m, int n, int k_blocks, int stages) {
    return {.family = GemmFamily::kSkinny,
            .mma = kMma,
            .rows = n,
            .cols = m,
            .groups = n / 64,
            .stages = stages,
            .k_blocks = k_blocks};
  }
  static constexpr GemmConfig SharingA(GemmConfig config) {
    config.share_rows = 2;
    return config;
  }
  static constexpr GemmConfig SharingB(GemmConfig config) {
    config.share_cols = 2;
    return config;
  }
  // The tile of D leaves while the next one multiplies.
  static constexpr GemmConfig Storing(GemmConfig config) {
    config.stores_tile = true;
    return config;
  }
  // The two warpgroups take turns.
  static constexpr GemmConfig Alternating(GemmConfig config) {
    config.groups = 2;
    config.alternates = true;
    return config;
  }
  static constexpr GemmConfig TwoPerSm(GemmConfig config) {
    config.ctas_per_sm = 2;
    return config;
  }
  // Of 64 of the weights' rows, a warpgroup.
  static constexpr GemmConfig TwoSubTiles(GemmConfig config) {
    config.groups /= 2;
    return config;
  }
  static constexpr GemmConfig TwoKGroups(GemmConfig config) {
    config.k_groups = 2;
    return config;
  }

  static constexpr GemmConfig kTiled[] = {
      Tiled(128, 64, 8),
      Tiled(128, 128, 6),
      Tiled(128, 192, 5),
      Tiled(128, 112, 6),
      Tiled(256, 112, 4),
      Storing(Tiled(128, 176, 4)),
      Alternating(Tiled(64, 128, 8)),
      Alternating(Tiled(128, 128, 6)),
      SharingB(Alternating(Tiled(128, 128, 6))),
      Storing(Tiled(128, 192, 4)),
      SharingB(Storing(Tiled(128, 192, 4))),
      SharingB(Storing(Tiled(128, 256, 3))),
      SharingA(Storing(Tiled(256, 128, 3))),
      Tiled(128, 144, 6),
      Tiled(128, 256, 4),
      SharingB(Tiled(128, 256, 4)),
      Alternating(Tiled(64, 256, 5)),
  };
  // Of many widths: rows just over one's tile fill another's.
  static constexpr GemmConfig kSkinny[] = {
      TwoPerSm(Skinny(16, 64, 1, 9)),
      TwoPerSm(TwoKGroups(Skinny(16, 64, 2, 4))),
      TwoPerSm(TwoKGroups(Skinny(32, 64, 2, 3))),
      TwoPerSm(Skinny(32, 64, 1, 8)),
      TwoKGroups(Skinny(48, 64, 2, 7)),
      TwoPerSm(Skinny(64, 64, 1, 6)),
      TwoKGroups(Skinny(64, 64, 2, 6)),
      TwoKGroups(Skinny(80, 64, 2, 5)),
      Skinny(64, 128, 2, 4),
      Skinny(80, 128, 1, 7),
      Skinny(96, 128, 1, 6),
      Skinny(112, 128, 1, 6),
      TwoSubTiles(Skinny(112, 256, 1, 4)),
      Skinny(144, 128, 1, 5),
      Skinny(176, 128, 1, 4),
      Skinny(160, 128, 1, 5),
  };
  static constexpr int kTiledCount = sizeof(kTiled) / sizeof(kTiled[0]);
  // Beside the last one's ring and staging there is no room for scales.
  static constexpr int kSkinnyCount =
      sizeof(kSkinny) / sizeof(kSkinny[0]) - (kMma == Mma::kI8 ? 1 : 0);
};

template <Mma kMma>
struct DirectFamilies {
  static constexpr int kTiled = DirectConfigs<kMma>::kTiledCount;
  static constexpr int kSkinny = DirectConfigs<kMma>::kSkinnyCount;

  static constexpr GemmFamilyEntry TiledEntry(const char* name) {
    return MakeFamily<DirectConfigs<kMma>::kTiled>(name, typename MakeIndices<kTiled>::Type());
  }
  static constexpr GemmFamilyEntry SkinnyEntry(const char* name) {
    return MakeFamily<DirectConfigs<kMma>::kSkinny>(name, typename MakeIndices<kSkinny>::Type());
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_FAMILY_CUH_
