// Grouped matmuls in FP8 with block scales: few rows a group with the weights on WGMMA's row side,
// many with A's rows there.

#include "kernels/cuda/sm90/sm90_fp8_grouped.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Thin(int m, int n, int k_blocks, int stages) {
  return {.family = GemmFamily::kSkinny,
          .rows = n,
          .cols = m,
          .groups = n / 64,
          .stages = stages,
          .k_blocks = k_blocks,
          .ragged = true};
}
constexpr GemmConfig Wide(int m, int n, int stages) {
  return {.family = GemmFamily::kTiled,
          .rows = m,
          .cols = n,
          .groups = 2,
          .stages = stages,
          .ragged = true};
}

// In the order of grouped.h's numbers.
constexpr GemmConfig kConfigs[] = {
    Thin(64, 128, 2, 4),
    Wide(128, 128, 6),
    Thin(64, 128, 1, 8),
};

template <int kIndex>
struct Member {
  static constexpr GemmConfig C = kConfigs[kIndex];
  static_assert(Check<C>());
  static constexpr auto* kKernel = Fp8Grouped<Encode(C), false>;
  static constexpr auto* kOfTables = Fp8Grouped<Encode(C), true>;

  static cudaError_t Prepare() {
    for (auto* kernel : {kKernel, kOfTables}) {
      const cudaError_t code =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C.smem_bytes());
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
  static cudaError_t Launch(const GroupedLaunch& launch, int ctas, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = C.smem_bytes();
    config.stream = stream;
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = launch.gemm.programmatic ? 1 : 0;
    return cudaLaunchKernelEx(&config, launch.b_maps != nullptr ? kOfTables : kKernel, launch);
  }
};

cudaError_t Prepare(int config) {
  static constexpr cudaError_t (*kTable[])() = {Member<0>::Prepare, Member<1>::Prepare,
                                                Member<2>::Prepare};
  return kTable[config]();
}

cudaError_t Launch(int config, const GroupedLaunch& launch, int ctas, cudaStream_t stream) {
  static constexpr cudaError_t (*kTable[])(const GroupedLaunch&, int, cudaStream_t) = {
      Member<0>::Launch, Member<1>::Launch, Member<2>::Launch};
  return kTable[config](launch, ctas, stream);
}

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Grouped = {
    kFp8GroupedName, kConfigs, sizeof(kConfigs) / sizeof(kConfigs[0]), Prepare, Launch};

}  // namespace gemmd::kernels::cuda
