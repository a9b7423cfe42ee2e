// Grouped matmuls in FP8 with block scales: few rows a group with the weights on WGMMA's row side,
// many with A's rows there.

#include "kernels/cuda/sm90_fp8_family.cuh"
#include "kernels/cuda/sm90_fp8_grouped.cuh"

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
          .groups = m % 192 == 0 ? 3 : 2,
          .stages = stages,
          .ragged = true};
}

constexpr GemmConfig SharingA(GemmConfig config) {
  config.share_rows = 2;
  return config;
}

// In the order of grouped.h's numbers.
constexpr GemmConfig kConfigs[] = {
    Thin(64, 128, 2, 4),           // kThinConfig
    Wide(128, 128, 6),             // kWideConfig
    Thin(64, 128, 1, 8),           // kThinAnyKConfig
    Wide(192, 128, 4),             // kWide192Config
    Wide(256, 128, 4),             // kWide256Config
    SharingA(Wide(128, 128, 6)),   //
    SharingA(Wide(192, 128, 4)),   //
    SharingA(Wide(256, 128, 4)),   //
    Thin(64, 64, 4, 3),            //
    Thin(32, 128, 4, 2),           //
    Thin(32, 128, 2, 5),           //
};

template <int kIndex>
struct Member {
  static constexpr GemmConfig C = kConfigs[kIndex];
  static_assert(Check<C>());
  static constexpr auto* kKernel = Fp8Grouped<Encode(C)>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                C.smem_bytes());
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
    cudaLaunchAttribute attributes[2] = {Cluster(), overlap};
    config.attrs = C.multicast() > 1 ? attributes : attributes + 1;
    config.numAttrs = (launch.gemm.programmatic ? 1 : 0) + (C.multicast() > 1 ? 1 : 0);
    return cudaLaunchKernelEx(&config, kKernel, launch);
  }
  static cudaLaunchAttribute Cluster() {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = C.multicast();
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
    return cluster;
  }
  static cudaError_t MostCtas(int sms, int* ctas) {
    *ctas = sms;
    if (C.multicast() == 1) return cudaSuccess;
    cudaLaunchAttribute cluster = Cluster();
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(C.multicast());
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = C.smem_bytes();
    config.attrs = &cluster;
    config.numAttrs = 1;
    int clusters = 0;
    const cudaError_t code = cudaOccupancyMaxActiveClusters(&clusters, kKernel, &config);
    *ctas = clusters * C.multicast();
    return code;
  }
};

template <int... I>
struct Table {
  static cudaError_t Prepare(int config) {
    static constexpr cudaError_t (*kTable[])() = {Member<I>::Prepare...};
    return kTable[config]();
  }
  static cudaError_t Launch(int config, const GroupedLaunch& launch, int ctas,
                            cudaStream_t stream) {
    static constexpr cudaError_t (*kTable[])(const GroupedLaunch&, int,
                                             cudaStream_t) = {Member<I>::Launch...};
    return kTable[config](launch, ctas, stream);
  }
  static cudaError_t MostCtas(int config, int sms, int* ctas) {
    static constexpr cudaError_t (*kTable[])(int, int*) = {Member<I>::MostCtas...};
    return kTable[config](sms, ctas);
  }
  static constexpr GroupedFamilyEntry Entry() {
    return {kFp8GroupedName, kConfigs, sizeof...(I), Prepare, Launch, MostCtas};
  }
};
template <int... I>
constexpr GroupedFamilyEntry EntryOf(Indices<I...>) {
  return Table<I...>::Entry();
}
constexpr int kCount = sizeof(kConfigs) / sizeof(kConfigs[0]);

}  // namespace

extern const GroupedFamilyEntry kSm90Fp8Grouped = EntryOf(MakeIndices<kCount>::Type());

}  // namespace gemmd::kernels::cuda
