// The compute-bound family: A's rows on WGMMA's row side, two math warpgroups a CTA.

#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

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

// What each is the fastest for on an H200: deploy/tuning/h200.json.
constexpr GemmConfig kTiledConfigs[] = {
    Tiled(128, 64, 8),
    SharingB(Tiled(128, 64, 8), 2),
    TwoPerSm(Tiled(128, 64, 3)),
    Tiled(128, 112, 6),
    Tiled(128, 128, 6),
    Tiled(128, 144, 6),
    SharingB(Tiled(128, 144, 6), 2),
    Tiled(128, 192, 5),
    Tiled(256, 128, 4),
    SharingA(Tiled(256, 128, 4), 2),
    Tiled(256, 112, 4),
    Tiled(192, 96, 5),
    SharingA(Tiled(192, 128, 4), 2),
    Storing(Tiled(128, 128, 5)),
    Storing(Tiled(128, 176, 4)),
    Storing(Tiled(128, 192, 4)),
    SharingA(Storing(Tiled(128, 192, 4)), 2),
    Storing(Tiled(256, 128, 3)),
    SharingA(Storing(Tiled(256, 128, 3)), 2),
    Storing(Tiled(192, 128, 4)),
    SharingA(Storing(Tiled(192, 128, 4)), 2),
    Tiled(128, 96, 7),
    Tiled(128, 160, 5),
    Tiled(192, 64, 6),
    Tiled(192, 112, 5),
};
constexpr int kCount = sizeof(kTiledConfigs) / sizeof(kTiledConfigs[0]);

extern const GemmFamilyEntry kSm90Fp8Tiled =
    MakeFamily<kTiledConfigs>("sm90_fp8_tiled", MakeIndices<kCount>::Type());

}  // namespace gemmd::kernels::cuda
