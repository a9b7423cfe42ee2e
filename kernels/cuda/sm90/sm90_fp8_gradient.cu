// Gradients of weights in FP8: both sides with a scale for each row and 128 of k, E4M3 and E5M2 in
// any mix.

#include "kernels/cuda/sm90/sm90_fp8_gradient.cuh"

namespace gemmd::kernels::cuda {
namespace {

constexpr GemmConfig Tiles(int m, int stages, int share_rows) {
  return {.rows = m,
          .cols = 128,
          .groups = 2,
          .stages = stages,
          .share_rows = share_rows,
          .scales_columns = true};
}

// In the order of gradient.h's numbers.
constexpr GemmConfig kConfigs[] = {
    Tiles(128, 4, 1),
    Tiles(256, 3, 1),
    Tiles(256, 3, 2),
};
constexpr int kCount = sizeof(kConfigs) / sizeof(kConfigs[0]);

template <int kIndex, bool kAE5M2, bool kBE5M2>
struct Member {
  static constexpr GemmConfig C = kConfigs[kIndex];
  static constexpr auto* kKernel = Fp8Gradient<Encode(C), kAE5M2, kBE5M2>;

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

// A config's kernels, by which sides are E5M2.
struct Functions {
  cudaError_t (*prepare)();
  cudaError_t (*launch)(const GradientLaunch&, cudaStream_t);
  cudaError_t (*max_clusters)(int*);
};
template <int kIndex, bool kAE5M2, bool kBE5M2>
constexpr Functions Of() {
  using M = Member<kIndex, kAE5M2, kBE5M2>;
  return {M::Prepare, M::Launch, M::MaxClusters};
}
template <int kIndex>
constexpr Functions OfTypes(int types) {
  constexpr Functions kTable[] = {Of<kIndex, false, false>(), Of<kIndex, false, true>(),
                                  Of<kIndex, true, false>(), Of<kIndex, true, true>()};
  return kTable[types];
}
Functions Find(int config, GradientTypes types) {
  static_assert(kCount == 3, "a row for each");
  const int both = types.a_e5m2 * 2 + types.b_e5m2;
  return config == 0 ? OfTypes<0>(both) : config == 1 ? OfTypes<1>(both) : OfTypes<2>(both);
}

cudaError_t Prepare(int config, GradientTypes types) { return Find(config, types).prepare(); }
cudaError_t Launch(int config, GradientTypes types, const GradientLaunch& launch,
                   cudaStream_t stream) {
  return Find(config, types).launch(launch, stream);
}
cudaError_t MaxClusters(int config, GradientTypes types, int* clusters) {
  return Find(config, types).max_clusters(clusters);
}

}  // namespace

extern const GradientFamilyEntry kSm90Fp8Gradient = {kGradientName, kConfigs, kCount,
                                                     Prepare,       Launch,   MaxClusters};

}  // namespace gemmd::kernels::cuda
