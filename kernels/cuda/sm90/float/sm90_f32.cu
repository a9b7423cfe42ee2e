// FP32. Its results are mostly FP32, which is finishing: there are no others' kernels.

#include "kernels/cuda/sm90/float/sm90_f32_configs.h"
#include "kernels/cuda/sm90/sm90_fp8_family.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmFamilyEntry kFinishing =
    MakeFamily<Mma::kF32, kF32TiledConfigs, kLength<kF32TiledConfigs>, FinishingEntry>(
        "sm90_f32_tiled");

}  // namespace

extern const GemmFamilyEntry kSm90F32Tiled =
    MakeFamily<Mma::kF32, kF32TiledConfigs, kLength<kF32TiledConfigs>, FinishingEntry>(
        "sm90_f32_tiled", &kFinishing);

}  // namespace gemmd::kernels::cuda
