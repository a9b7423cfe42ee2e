// The host side: what a family's .cu needs to list configs of the kernel.

#pragma once

#include <cuda_runtime.h>

#include <type_traits>
#include <utility>

#include "kernels/cuda/sm90/config_makers.h"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {

// One row of functions for each config.
template <GemmConfig C, bool kFinishes>
struct EntryOf {
  static_assert(Check<C>());
  static constexpr auto* kKernel = Gemm<Encode(C), kFinishes>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                C.dense_smem_bytes());
  }
  static cudaLaunchConfig_t Config(int ctas, int cluster_size, cudaLaunchAttribute* cluster) {
    cluster->id = cudaLaunchAttributeClusterDimension;
    cluster->val.clusterDim.x = cluster_size;
    cluster->val.clusterDim.y = 1;
    cluster->val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = C.dense_smem_bytes();
    config.attrs = cluster;
    config.numAttrs = 1;
    return config;
  }
  static cudaError_t Launch(const GemmLaunch& launch, cudaStream_t stream) {
    cudaLaunchAttribute attributes[2];
    const int cluster_size = static_cast<int>(launch.cluster_ctas.value);
    cudaLaunchConfig_t config = Config(launch.clusters * cluster_size, cluster_size, attributes);
    // Single CTAs, one an SM, start sooner if they are no clusters; two an SM start later.
    if (cluster_size == 1 && C.ctas_per_sm == 1) config.numAttrs = 0;
    config.stream = stream;
    if (launch.programmatic) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelEx(&config, kKernel, launch);
  }
  static cudaError_t MaxClusters(int cluster_size, int* clusters) {
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t config = Config(cluster_size, cluster_size, &attribute);
    return cudaOccupancyMaxActiveClusters(clusters, kKernel, &config);
  }
};

template <GemmConfig C>
struct Entry : EntryOf<C, false> {};
template <GemmConfig C>
struct FinishingEntry : EntryOf<C, true> {};

// Of a config that has no kernel in a list.
template <typename LaunchArgs>
struct NoEntry {
  static cudaError_t Prepare() { return cudaErrorNoKernelImageForDevice; }
  static cudaError_t Launch(const LaunchArgs&, cudaStream_t) {
    return cudaErrorNoKernelImageForDevice;
  }
  static cudaError_t MaxClusters(int, int*) { return cudaErrorNoKernelImageForDevice; }
};
// They finish what they are asked for, be it nothing.
template <GemmConfig C>
struct AlongRowsEntry
    : std::conditional_t<C.has_along_rows(), EntryOf<AlongRows(C), true>, NoEntry<GemmLaunch>> {};
template <GemmConfig C>
struct BothAlongRowsEntry
    : std::conditional_t<C.has_both_along_rows(), EntryOf<BothAlongRows(C), true>,
                         NoEntry<GemmLaunch>> {};

template <const auto& kList>
inline constexpr int kLength = sizeof(kList) / sizeof(kList[0]);

// A build for tests that meet no GPU leaves out most of the kernels that no test reads: of those
// that differ in their tiles' extents alone it has the first. A launch of another fails.
template <const auto& kList>
constexpr bool LeftOut(int config) {
#ifdef GEMMD_QUICK_KERNELS
  constexpr auto kind_of = [](GemmConfig c) {
    c.rows = c.cols = c.stages = 0;
    return c;
  };
  for (int before = 0; before < config; ++before) {
    if (kind_of(kList[before]) == kind_of(kList[config])) return true;
  }
#endif
  return false;
}

// The first `kCount` configs of a list, of one operand kind, and tables of functions with a row for
// each one's entry. Its kernel is given `LaunchArgs`.
template <typename LaunchArgs, template <GemmConfig> class Entry, Mma kMma, const auto& kList,
          typename Indices>
struct IndexedFamily;
template <typename LaunchArgs, template <GemmConfig> class Entry, Mma kMma, const auto& kList,
          int... I>
struct IndexedFamily<LaunchArgs, Entry, kMma, kList, std::integer_sequence<int, I...>> {
  static constexpr GemmConfig kConfigs[] = {OfKind(kMma, kList[I])...};
  template <int i>
  using EntryAt = std::conditional_t<LeftOut<kList>(i), NoEntry<LaunchArgs>, Entry<kConfigs[i]>>;

  static cudaError_t Prepare(int config) {
    static constexpr cudaError_t (*kTable[])() = {EntryAt<I>::Prepare...};
    return kTable[config]();
  }
  static cudaError_t Launch(int config, const LaunchArgs& launch, cudaStream_t stream) {
    static constexpr cudaError_t (*kTable[])(const LaunchArgs&,
                                             cudaStream_t) = {EntryAt<I>::Launch...};
    return kTable[config](launch, stream);
  }
  static cudaError_t MaxClusters(int config, int cluster_size, int* clusters) {
    static constexpr cudaError_t (*kTable[])(int, int*) = {EntryAt<I>::MaxClusters...};
    return kTable[config](cluster_size, clusters);
  }
};
template <typename LaunchArgs, template <GemmConfig> class Entry, Mma kMma, const auto& kList,
          int kCount>
using FamilyOf =
    IndexedFamily<LaunchArgs, Entry, kMma, kList, std::make_integer_sequence<int, kCount>>;

template <Mma kMma, const auto& kList, int kCount = kLength<kList>,
          template <GemmConfig> class EntryOf = Entry>
constexpr GemmFamilyEntry MakeFamily(const char* name, const GemmFamilyEntry* finishing = nullptr,
                                     const GemmFamilyEntry* along_rows = nullptr,
                                     const GemmFamilyEntry* both_along_rows = nullptr) {
  using F = FamilyOf<GemmLaunch, EntryOf, kMma, kList, kCount>;
  return {name,           F::kConfigs, kCount,     F::Prepare,     F::Launch,
          F::MaxClusters, finishing,   along_rows, both_along_rows};
}

}  // namespace gemmd::kernels::cuda
