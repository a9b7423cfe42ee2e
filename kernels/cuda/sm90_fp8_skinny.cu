// The small-m family: weights on WGMMA's 64-row side, the batch on its columns, k split over a
// cluster so that every SM streams weights.

#include "kernels/cuda/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Skinny(int m, int n, int groups, int stages) {
  return {.family = GemmFamily::kSkinny, .rows = n, .cols = m, .groups = groups, .stages = stages};
}
constexpr GemmConfig TwoPerSm(GemmConfig config) {
  config.ctas_per_sm = 2;
  return config;
}

}  // namespace

constexpr GemmConfig kSkinnyConfigs[] = {
    Skinny(8, 64, 1, 20),           TwoPerSm(Skinny(8, 64, 1, 10)), Skinny(16, 64, 1, 18),
    TwoPerSm(Skinny(16, 64, 1, 9)), Skinny(16, 128, 2, 10),         Skinny(64, 64, 1, 12),
    TwoPerSm(Skinny(64, 64, 1, 6)), Skinny(64, 128, 2, 8),          Skinny(128, 64, 1, 8),
    Skinny(128, 128, 2, 5),
};
constexpr int kCount = sizeof(kSkinnyConfigs) / sizeof(kSkinnyConfigs[0]);

extern const GemmFamilyEntry kSm90Fp8Skinny =
    MakeFamily<kSkinnyConfigs>("sm90_fp8_skinny", MakeIndices<kCount>::Type());

}  // namespace gemmd::kernels::cuda
