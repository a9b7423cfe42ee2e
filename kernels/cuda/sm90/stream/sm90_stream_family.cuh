// What a stream-k family's .cu needs to list its configs.

#pragma once

#include "kernels/cuda/sm90/sm90_fp8_family.cuh"
#include "kernels/cuda/sm90/stream/sm90_stream.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C, bool kFinishes>
struct StreamEntryOf {
  static_assert(CheckStream<C>());
  static constexpr auto* kKernel = GemmStream<Encode(C), kFinishes>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                C.dense_smem_bytes());
  }
  static cudaLaunchConfig_t Config(int ctas, cudaLaunchAttribute* programmatic) {
    programmatic->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    programmatic->val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(StreamThreads(C));
    config.dynamicSmemBytes = C.dense_smem_bytes();
    config.attrs = programmatic;
    return config;
  }
  static cudaError_t Launch(const StreamLaunch& launch, cudaStream_t stream) {
    cudaLaunchAttribute programmatic;
    cudaLaunchConfig_t config = Config(launch.clusters, &programmatic);
    config.stream = stream;
    config.numAttrs = launch.programmatic ? 1 : 0;
    return cudaLaunchKernelEx(&config, kKernel, launch);
  }
  static cudaError_t MaxClusters(int cluster_size, int* clusters) {
    if (cluster_size != 1) return cudaErrorInvalidValue;
    int device = 0, sms = 0, ctas = 0;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess) {
      code = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    }
    if (code == cudaSuccess) {
      code = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas, kKernel, StreamThreads(C),
                                                           C.dense_smem_bytes());
    }
    *clusters = sms * ctas;
    return code;
  }
};

template <GemmConfig C>
struct StreamEntry : StreamEntryOf<C, false> {};
template <GemmConfig C>
struct FinishingStreamEntry : StreamEntryOf<C, true> {};
template <GemmConfig C>
struct AlongRowsStreamEntry : StreamEntryOf<AlongRows(C), true> {};
template <GemmConfig C>
struct BothAlongRowsStreamEntry
    : std::conditional_t<C.has_both_along_rows(), StreamEntryOf<BothAlongRows(C), true>,
                         NoEntry<StreamLaunch>> {};

template <Mma kMma, const auto& kList, template <GemmConfig> class EntryOf = StreamEntry>
constexpr StreamFamilyEntry MakeStreamFamily(const char* name,
                                             const StreamFamilyEntry* finishing = nullptr,
                                             const StreamFamilyEntry* along_rows = nullptr,
                                             const StreamFamilyEntry* both_along_rows = nullptr) {
  using F = FamilyOf<StreamLaunch, EntryOf, kMma, kList, kLength<kList>>;
  return {{name, F::kConfigs, kLength<kList>, F::Prepare, nullptr, F::MaxClusters, nullptr, nullptr,
           nullptr},
          F::Launch,
          finishing,
          along_rows,
          both_along_rows};
}

}  // namespace gemmd::kernels::cuda
