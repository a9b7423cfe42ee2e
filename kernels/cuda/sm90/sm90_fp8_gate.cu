// Matmuls in FP8 with block scales whose finish is a gate: few rows with the weights on WGMMA's row
// side, many with A's rows there.

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/sm90_fp8_gate.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Thin(int m, int stages) {
  return Gating(Ragged(TwoSubTiles(Skinny(m, 2 * kGateCols, 1, stages))));
}
constexpr GemmConfig Wide(int m, int stages) {
  return Gating(Ragged(Tiled(m, 2 * kGateCols, stages)));
}

// In the order of gate_launch.h's numbers.
constexpr GemmConfig kConfigs[] = {Thin(64, 5), Wide(128, 4), Thin(16, 6)};

template <int kIndex, bool kAlone>
struct Member {
  static constexpr GemmConfig C = kConfigs[kIndex];
  static_assert(Check<C>());
  static constexpr auto* kKernel = kAlone ? Fp8GateAlone<Encode(C)> : Fp8Gate<Encode(C)>;
  static constexpr int kSmemBytes = C.smem_bytes();
  static_assert(kSmemBytes <= kMaxSmemBytes, "a block's shared memory");

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  }
  static cudaError_t Launch(const GateLaunch& launch, int ctas, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = kSmemBytes;
    config.stream = stream;
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = launch.gemm.programmatic ? 1 : 0;
    return cudaLaunchKernelEx(&config, kKernel, launch);
  }
};

template <bool kAlone>
cudaError_t PrepareAt(int config) {
  static constexpr cudaError_t (*kTable[])() = {
      Member<0, kAlone>::Prepare, Member<1, kAlone>::Prepare, Member<2, kAlone>::Prepare};
  return kTable[config]();
}
cudaError_t Prepare(int config, bool alone) {
  return alone ? PrepareAt<true>(config) : PrepareAt<false>(config);
}

template <bool kAlone>
cudaError_t LaunchAt(int config, const GateLaunch& launch, int ctas, cudaStream_t stream) {
  static constexpr cudaError_t (*kTable[])(const GateLaunch&, int, cudaStream_t) = {
      Member<0, kAlone>::Launch, Member<1, kAlone>::Launch, Member<2, kAlone>::Launch};
  return kTable[config](launch, ctas, stream);
}
cudaError_t Launch(int config, const GateLaunch& launch, int ctas, cudaStream_t stream) {
  return launch.gated.alone ? LaunchAt<true>(config, launch, ctas, stream)
                            : LaunchAt<false>(config, launch, ctas, stream);
}

}  // namespace

extern const GateFamilyEntry kSm90Fp8Gate = {kConfigs, sizeof(kConfigs) / sizeof(kConfigs[0]),
                                             Prepare, Launch};

}  // namespace gemmd::kernels::cuda
