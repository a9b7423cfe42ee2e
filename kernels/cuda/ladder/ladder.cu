#include <cuda_runtime.h>

#include "kernels/cuda/ladder/rung.h"
#include "kernels/cuda/ladder/step_01_one_tile.cuh"
#include "kernels/cuda/ladder/step_02_k_loop.cuh"
#include "kernels/cuda/ladder/step_03_many_tiles.cuh"
#include "kernels/cuda/ladder/step_04_tma.cuh"
#include "kernels/cuda/ladder/step_05_ring.cuh"
#include "kernels/cuda/ladder/step_06_persistent.cuh"
#include "kernels/cuda/ladder/step_07_producer.cuh"
#include "kernels/cuda/ladder/step_08_four_stages.cuh"
#include "kernels/cuda/ladder/step_09_cluster.cuh"
#include "kernels/cuda/ladder/step_10_two_consumers.cuh"
#include "kernels/cuda/ladder/step_11_fp8.cuh"

namespace gemmd::kernels::cuda::ladder {
namespace {

// Half of an SM's shared memory and a little more: one CTA an SM. Otherwise the rungs with few
// stages would hide their waits behind a neighbour's work, and not by what they teach.
constexpr int kOneCtaBytes = 118 * 1024;

struct Shape {
  int ctas;
  int threads;
  int shared_bytes;
  int cluster = 1;
};

template <class... Args>
cudaError_t Launch(void (*kernel)(Args...), const Shape& shape, cudaStream_t stream, Args... args) {
  const int shared_bytes = shape.shared_bytes > kOneCtaBytes ? shape.shared_bytes : kOneCtaBytes;
  cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (code != cudaSuccess) return code;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = shape.cluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.ctas);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = shape.cluster > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

// Of the current device.
int Sms() {
  int device = 0;
  int sms = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  return sms > 0 ? sms : 1;
}

int Tiles(const Matmul& g, int rows, int cols) {
  return (g.m + rows - 1) / rows * ((g.n + cols - 1) / cols);
}
// A CTA an SM, or a pair for two, but none without work.
int Persistent(const Matmul& g, int rows, int cols, int cluster) {
  const int tiles = Tiles(g, rows, cols * cluster);
  const int clusters = Sms() / cluster;
  return (tiles < clusters ? tiles : clusters) * cluster;
}

template <auto kKernel, int kBytes>
cudaError_t LaunchSync(const Matmul& g, const Maps&, cudaStream_t stream) {
  return Launch(kKernel, {Tiles(g, 128, 128), kThreads, kBytes}, stream, g);
}
template <auto kKernel, class Shared>
cudaError_t LaunchTma(const Matmul& g, const Maps& maps, cudaStream_t stream) {
  return Launch(kKernel, {Tiles(g, 128, 128), kThreads, Shared::kBytes}, stream, maps, g);
}
template <auto kKernel, class Shared, int kThreadsOf, int kRows, int kCluster>
cudaError_t LaunchPersistent(const Matmul& g, const Maps& maps, cudaStream_t stream) {
  return Launch(kKernel,
                {Persistent(g, kRows, 128, kCluster), kThreadsOf, Shared::kBytes, kCluster}, stream,
                maps, g);
}

}  // namespace

const Rung kRungs[kNumRungs] = {
    {"sm90_ladder_01_one_tile", "one tile, synchronous", true, true, false, false, 128, 60e9,
     LaunchSync<Step1OneTile, kStep1Bytes>},
    {"sm90_ladder_02_k_loop", "loop over k", true, false, false, false, 128, 1e12,
     LaunchSync<Step2KLoop, kStep2Bytes>},
    {"sm90_ladder_03_many_tiles", "many tiles", false, false, false, false, 128, 100e12,
     LaunchSync<Step3ManyTiles, kStep3Bytes>},
    {"sm90_ladder_04_tma", "TMA", false, false, true, false, 128, 200e12,
     LaunchTma<Step4Tma, Step4Shared>},
    {"sm90_ladder_05_ring", "ring of 2", false, false, true, false, 128, 350e12,
     LaunchTma<Step5Ring, Step5Shared>},
    {"sm90_ladder_06_persistent", "persistent, L2 order", false, false, true, false, 128, 380e12,
     LaunchPersistent<Step6Persistent, Step6Shared, kThreads, 128, 1>},
    {"sm90_ladder_07_producer", "producer and consumer warps", false, false, true, false, 128,
     420e12, LaunchPersistent<Step7Producer, Step7Shared, kStep7Threads, 128, 1>},
    {"sm90_ladder_08_four_stages", "4 stages", false, false, true, false, 128, 520e12,
     LaunchPersistent<Step8FourStages, Step8Shared, kStep8Threads, 128, 1>},
    {"sm90_ladder_09_cluster", "cluster of 2, multicast", false, false, true, false, 64, 560e12,
     LaunchPersistent<Step9Cluster, Step9Shared, kStep9Threads, 128, 2>},
    {"sm90_ladder_10_two_consumers", "two consumer warpgroups", false, false, true, false, 128,
     650e12, LaunchPersistent<Step10TwoConsumers, Step10Shared, kStep10Threads, 256, 2>},
    {"sm90_ladder_11_fp8", "FP8 with promotion", false, false, true, true, 128, 1000e12,
     LaunchPersistent<Step11Fp8, Step11Shared, kStep11Threads, 256, 2>},
};

}  // namespace gemmd::kernels::cuda::ladder
