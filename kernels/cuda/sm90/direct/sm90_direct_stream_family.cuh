// The stream-k tables of BF16 and FP16: one list for both, of which a .cu makes one type's.

#ifndef GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_FAMILY_CUH_
#define GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_FAMILY_CUH_

#include "kernels/cuda/sm90/direct/sm90_direct_family.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_stream.cuh"

namespace gemmd::kernels::cuda {

// Large tiles, of widths that leave few rows over: how many there are is no matter here.
template <Mma kMma>
struct StreamConfigs {
  using Direct = DirectConfigs<kMma>;
  static constexpr GemmConfig kAll[] = {
      Direct::Tiled(128, 192, 5),
      Direct::Tiled(128, 256, 4),
      Direct::TwoSubTiles(Direct::Skinny(112, 256, 1, 4)),
      Direct::Skinny(144, 128, 1, 5),
      Direct::Skinny(176, 128, 1, 4),
  };
  static constexpr int kCount = sizeof(kAll) / sizeof(kAll[0]);
};

template <GemmConfig C>
struct StreamEntry {
  static_assert(CheckStream<C>());
  static constexpr auto* kKernel = GemmStream<Encode(C)>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                C.smem_bytes());
  }
  static cudaLaunchConfig_t Config(int ctas, cudaLaunchAttribute* programmatic) {
    programmatic->id = cudaLaunchAttributeProgrammaticStreamSerialization;
    programmatic->val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(StreamThreads(C));
    config.dynamicSmemBytes = C.smem_bytes();
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
                                                           C.smem_bytes());
    }
    *clusters = sms * ctas;
    return code;
  }
};

template <Mma kMma, int... I>
constexpr StreamFamilyEntry MakeStreamFamily(const char* name, Indices<I...>) {
  constexpr auto& kAll = StreamConfigs<kMma>::kAll;
  using Table = FamilyTable<StreamLaunch, StreamEntry<kAll[I]>...>;
  return {{name, kAll, sizeof...(I), Table::Prepare, nullptr, Table::MaxClusters}, Table::Launch};
}
template <Mma kMma>
constexpr StreamFamilyEntry MakeStreamFamily(const char* name) {
  return MakeStreamFamily<kMma>(name, typename MakeIndices<StreamConfigs<kMma>::kCount>::Type());
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_DIRECT_SM90_DIRECT_STREAM_FAMILY_CUH_
