// Grouped matmuls in FP8 with block scales: thin tiles of few rows, with the weights on WGMMA's row
// side, and wide ones, with A's rows there.

#include "kernels/cuda/sm90/sm90_fp8_grouped.cuh"

namespace gemmd::kernels::cuda {
namespace {

// In the order of grouped.h's numbers. 128 x 256 has what 256 x 128 has of results and of loads,
// and wastes less of a group's last rows.
constexpr GemmConfig kConfigs[kTileKinds] = {
    {.family = GemmFamily::kSkinny,
     .rows = 128,
     .cols = 64,
     .groups = 2,
     .stages = 4,
     .k_blocks = 2,
     .ragged = true},
    {.family = GemmFamily::kTiled,
     .rows = 128,
     .cols = 256,
     .groups = 2,
     .stages = 4,
     .ragged = true},
};
constexpr GemmConfig kThin = kConfigs[kThinTile], kWide = kConfigs[kWideTile];
static_assert(Check<kThin>() && Check<kWide>());
constexpr int kSmemBytes = kWide.smem_bytes() + GroupWalk<kWide, kThin>::kBytes;
static_assert(kSmemBytes <= kMaxSmemBytes);

constexpr auto* kKernel = Fp8Grouped<Encode(kWide), Encode(kThin), false>;
constexpr auto* kOfTables = Fp8Grouped<Encode(kWide), Encode(kThin), true>;

cudaError_t Prepare() {
  for (auto* kernel : {kKernel, kOfTables}) {
    const cudaError_t code =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t Launch(const GroupedLaunch& launch, int ctas, bool programmatic, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(kWide.threads());
  config.dynamicSmemBytes = kSmemBytes;
  config.stream = stream;
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = programmatic ? 1 : 0;
  return cudaLaunchKernelEx(&config, launch.table != nullptr ? kOfTables : kKernel, launch);
}

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Grouped = {kFp8GroupedName, kConfigs, Prepare, Launch};

}  // namespace gemmd::kernels::cuda
