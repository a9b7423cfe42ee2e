// The compute-bound family: A's rows on WGMMA's row side, two math warpgroups a CTA.

#include "kernels/cuda/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Tiled(int m, int n, int stages) {
  return {.family = GemmFamily::kTiled,
          .rows = m,
          .cols = n,
          .groups = m % 192 == 0 ? 3 : 2,
          .stages = stages};
}
constexpr GemmConfig SharingA(GemmConfig config, int ctas) {
  config.share_rows = ctas;
  return config;
}
constexpr GemmConfig SharingB(GemmConfig config, int ctas) {
  config.share_cols = ctas;
  return config;
}
// The tile of D leaves while the next one multiplies.
constexpr GemmConfig Storing(GemmConfig config) {
  config.stores_tile = true;
  return config;
}
constexpr GemmConfig TwoPerSm(GemmConfig config) {
  config.ctas_per_sm = 2;
  return config;
}

}  // namespace

// Behind each: where it was the fastest of the pool on an H200 (m x n x k).
constexpr GemmConfig kTiledConfigs[] = {
    Tiled(128, 64, 8),                         // 128 x most n, split up to 8
    SharingB(Tiled(128, 64, 8), 2),            // 512 x 2112 x 7168
    TwoPerSm(Tiled(128, 64, 3)),               // 128 rows, short k
    Tiled(128, 112, 6),                        // 128 x 7168 x 16384, split 2
    Tiled(128, 128, 6),                        // 512 x 4096 x 7168
    Tiled(128, 144, 6),                        // 4096 x 576 x 7168: 128 tiles
    Tiled(128, 160, 5),                        // 4096 x 7168 x 16384: 11 waves of 132
    Tiled(128, 192, 5),                        // large, few waves
    Tiled(256, 128, 4),                        // 512 x 7168 x 16384, 4096 x 4096 x 7168
    SharingA(Tiled(256, 128, 4), 2),           // 4096 x 7168 x 16384
    Tiled(256, 112, 4),                        // 512 x 7168 x 2048 and 16384: 128 tiles
    Tiled(192, 96, 5),                         // 4096 x 576 x 7168: 132 tiles
    SharingA(Tiled(192, 128, 4), 2),           // 8192 x 8192 x 8192
    Storing(Tiled(128, 128, 5)),               // 512 x 32768 x 512
    Storing(Tiled(128, 176, 4)),               // 4096 x 2112 x 7168: 3 waves of 128
    Storing(Tiled(128, 192, 4)),               // 512 x 24576 x 1536
    SharingA(Storing(Tiled(128, 192, 4)), 2),  // 4096 x 24576 x 1536
    Storing(Tiled(256, 128, 3)),               // 4096 x 7168 x 2048
    SharingA(Storing(Tiled(256, 128, 3)), 2),  // large
    Storing(Tiled(192, 128, 4)),               // 4096 x 32768 x 512
    SharingA(Storing(Tiled(192, 128, 4)), 2),  // 16384 x 7168 x 4096
};
constexpr int kCount = sizeof(kTiledConfigs) / sizeof(kTiledConfigs[0]);

extern const GemmFamilyEntry kSm90Fp8Tiled =
    MakeFamily<kTiledConfigs>("sm90_fp8_tiled", MakeIndices<kCount>::Type());

}  // namespace gemmd::kernels::cuda
