// The compute-bound family: A's rows on WGMMA's row side, two math warpgroups a CTA.

#include "kernels/cuda/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Tiled(int m, int n, int stages) {
  return {.family = GemmFamily::kTiled,
          .rows = m,
          .cols = n,
          .groups = m % 192 == 0 ? 3 : 2,
          .stages = stages};
}
constexpr GemmConfig SharingB(GemmConfig config, int ctas) {
  config.share_cols = ctas;
  return config;
}
constexpr GemmConfig SharingA(GemmConfig config, int ctas) {
  config.share_rows = ctas;
  return config;
}
constexpr GemmConfig Halved(GemmConfig config) {
  config.col_halves = 2;
  return config;
}
constexpr GemmConfig TwoPerSm(GemmConfig config) {
  config.ctas_per_sm = 2;
  return config;
}

}  // namespace

constexpr GemmConfig kTiledConfigs[] = {
    Tiled(128, 64, 8),
    TwoPerSm(Tiled(128, 64, 3)),
    TwoPerSm(Tiled(128, 80, 3)),
    Tiled(128, 112, 6),
    Tiled(128, 128, 6),
    SharingB(Tiled(128, 128, 6), 2),
    Tiled(128, 144, 6),
    Tiled(128, 176, 5),
    SharingB(Tiled(128, 176, 5), 2),
    Tiled(128, 192, 5),
    SharingB(Tiled(128, 192, 5), 2),
    SharingB(Halved(Tiled(128, 224, 4)), 2),
    SharingB(Halved(Tiled(128, 256, 4)), 2),
    SharingB(Tiled(256, 112, 4), 2),
    SharingB(Tiled(256, 128, 4), 2),
    Tiled(192, 96, 5),
    SharingB(Tiled(192, 96, 5), 2),
    Tiled(192, 112, 5),
    SharingB(Tiled(192, 112, 5), 2),
    Tiled(192, 120, 4),
    SharingA(Tiled(192, 120, 4), 2),
    Tiled(192, 128, 4),
    SharingB(Tiled(192, 128, 4), 2),
    SharingA(Tiled(192, 128, 4), 2),
    SharingA(Tiled(256, 128, 4), 2),
};
constexpr int kCount = sizeof(kTiledConfigs) / sizeof(kTiledConfigs[0]);

extern const GemmFamilyEntry kSm90Fp8Tiled =
    MakeFamily<kTiledConfigs>("sm90_fp8_tiled", MakeIndices<kCount>::Type());

}  // namespace gemmd::kernels::cuda
