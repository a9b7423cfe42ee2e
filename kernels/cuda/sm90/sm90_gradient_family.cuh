// The seam to the host of a gradient kernel.

#pragma once

#include "kernels/cuda/sm90/sm90_gradient.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C, auto* kKernel>
struct GradientMember {
  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                GradientBoxes<C>::kSmemBytes);
  }
  static cudaLaunchConfig_t Config(int clusters, cudaLaunchAttribute* attributes) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = C.multicast();
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(clusters * C.multicast()));
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = GradientBoxes<C>::kSmemBytes;
    config.attrs = attributes;
    config.numAttrs = 1;
    return config;
  }
  static cudaError_t Launch(const GradientLaunch& launch, cudaStream_t stream) {
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = Config(launch.clusters, attributes);
    if (C.multicast() == 1) config.numAttrs = 0;
    config.stream = stream;
    if (launch.programmatic) {
      cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelEx(&config, kKernel, launch);
  }
  static cudaError_t MaxClusters(int* clusters) {
    cudaLaunchAttribute attributes[1];
    const cudaLaunchConfig_t config = Config(1, attributes);
    return cudaOccupancyMaxActiveClusters(clusters, kKernel, &config);
  }
};

// A config's functions for one mix of operands.
struct GradientFunctions {
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const GradientLaunch&, cudaStream_t);
  cudaError_t (*max_clusters)(int*);
};
template <GemmConfig C, auto* kKernel>
constexpr GradientFunctions FunctionsOf() {
  using M = GradientMember<C, kKernel>;
  return {M::Prepare, M::Launch, M::MaxClusters};
}

// A table's functions, by a function that finds a config's.
template <GradientFunctions (*kFind)(int config, GradientTypes types)>
struct GradientTable {
  static cudaError_t Prepare(int config, GradientTypes types) {
    return kFind(config, types).prepare();
  }
  static cudaError_t Launch(int config, GradientTypes types, const GradientLaunch& launch,
                            cudaStream_t stream) {
    return kFind(config, types).launch(launch, stream);
  }
  static cudaError_t MaxClusters(int config, GradientTypes types, int* clusters) {
    return kFind(config, types).max_clusters(clusters);
  }
};

}  // namespace gemmd::kernels::cuda
