// The kernel of the TMA + WGMMA families, and what their .cu files need to list configs of it.
//
//            TMA (multicast)          full                    WGMMA          promotion
//   HBM/L2 ------------------> ring of stages [rows|cols|scales] ---> accumulators ---> result
//            producer warp <-------- empty                    math warpgroups            |
//                                                                                        v
//   D <---- bulk copies of rows <---- staging <---- round, bias, ... <---- (cluster adds its k
//   parts)

#ifndef GEMMD_KERNELS_CUDA_SM90_FP8_GEMM_CUH_
#define GEMMD_KERNELS_CUDA_SM90_FP8_GEMM_CUH_

#include <cuda_runtime.h>

#include "kernels/cuda/gemm_family.h"
#include "kernels/cuda/ptx/griddepcontrol.cuh"
#include "kernels/cuda/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90_fp8_math.cuh"
#include "kernels/cuda/sm90_fp8_producer.cuh"
#include "kernels/cuda/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

template <GemmConfig C>
constexpr bool Check() {
  static_assert(C.groups >= 1 && C.groups <= 2, "registers: at most two math warpgroups");
  static_assert(C.rows % (64 * C.groups) == 0, "a WGMMA has 64 rows");
  static_assert(C.cols % 8 == 0 && C.sub_cols() % 8 == 0 && C.sub_cols() <= 256, "WGMMA's columns");
  static_assert(C.rows <= 256 && C.cols <= 256, "a tensor map's box has at most 256 rows");
  static_assert(C.stages >= 2, "a ring");
  static_assert(C.rows / C.share_rows % 8 == 0 && C.cols / C.share_cols % 8 == 0,
                "slices keep to groups of 8 swizzled rows");
  static_assert(C.cols / 8 % C.store_halves == 0, "halves of whole chunks");
  static_assert(C.smem_bytes() <= kMaxSmemBytes, "a block's shared memory");
  static_assert(C.ctas_per_sm * (C.smem_bytes() + kReservedSmem) <= kSmemPerSm, "an SM's");
  static_assert(C.result_regs() + C.accumulator_regs() <= 200, "a thread's registers");
  static_assert(!C.skinny() || C.rows / C.groups <= 128, "a warpgroup's rows");
  return true;
}

// The i-th four of a thread's results: one chunk of the epilogue.
template <GemmConfig C>
__device__ __forceinline__ float4 ChunkOf(const float (&result)[C.result_regs()], int i) {
  return make_float4(result[4 * i], result[4 * i + 1], result[4 * i + 2], result[4 * i + 3]);
}

// The cluster's k parts of one tile meet in shared memory. Every CTA adds up its share of the
// chunks, always in the order of the parts, so that the sum is the same in every run.
template <GemmConfig C>
__device__ __forceinline__ void StoreSplit(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                           const ClusterPlace<C>& place, const Epilogue<C>& out,
                                           const float (&result)[C.result_regs()], int thread) {
  ptx::NamedBarrier(1, C.math_threads());  // every warpgroup has finished with the ring
#pragma unroll
  for (int i = 0; i < C.result_regs() / 4; ++i) {
    ptx::StoreShared4(smem.base + (i * C.math_threads() + thread) * 16, ChunkOf<C>(result, i));
  }
  ptx::ClusterArrive();
  ptx::ClusterWait();
  using Out = Epilogue<C>;
  const int begin = Out::kChunks * place.k_part / launch.split;
  const int end = Out::kChunks * (place.k_part + 1) / launch.split;
  const int step = out.general ? Out::kStepF32 : Out::kStep;
  const int peer = place.rank % C.multicast();
  for (int sub = 0; sub < C.row_subs(); ++sub) {
    for (int first = begin; first < end; first += step) {
      const int last = min(first + step, end);
      out.Open();
      for (int chunk = first; chunk < last; ++chunk) {
        const uint32_t at =
            smem.base + ((sub * Out::kChunks + chunk) * C.math_threads() + thread) * 16;
        float4 sum = ptx::LoadRemote4(at, peer);
        for (int part = 1; part < launch.split; ++part) {
          const float4 v = ptx::LoadRemote4(at, part * C.multicast() + peer);
          sum.x += v.x;
          sum.y += v.y;
          sum.z += v.z;
          sum.w += v.w;
        }
        out.general ? out.StageF32(chunk, first, sum) : out.Stage(chunk, first, sum);
      }
      out.general ? out.Finish(sub, first, last) : out.Close(sub, first, last);
    }
  }
}

template <GemmConfig C>
__device__ __forceinline__ void StoreWhole(const Epilogue<C>& out,
                                           const float (&result)[C.result_regs()]) {
  using Out = Epilogue<C>;
  if (out.general) {
#pragma unroll
    for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
      for (int first = 0; first < Out::kChunks; first += Out::kStepF32) {
        const int last = min(first + Out::kStepF32, Out::kChunks);
        out.Open();
#pragma unroll
        for (int chunk = first; chunk < last; ++chunk) {
          out.StageF32(chunk, first, ChunkOf<C>(result, sub * Out::kChunks + chunk));
        }
        out.Finish(sub, first, last);
      }
    }
    return;
  }
#pragma unroll
  for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
    for (int first = 0; first < Out::kChunks; first += Out::kStep) {
      out.Open();
#pragma unroll
      for (int chunk = first; chunk < first + Out::kStep; ++chunk) {
        out.Stage(chunk, first, ChunkOf<C>(result, sub * Out::kChunks + chunk));
      }
      out.Close(sub, first, first + Out::kStep);
    }
  }
}

template <GemmConfig C>
__device__ __forceinline__ void Consume(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster) {
  const int thread = threadIdx.x;
  const int warp = __shfl_sync(0xffffffff, thread / 32, 0);
  const int lane = thread % 32;
  const TileOrder<C> order = TileOrder<C>::Of(launch);
  const KRange range = KRange::Of(launch, place.k_part);
  float result[C.result_regs()];
  Math<C> math{smem, place, warp % 4, lane, warp / 4, {}, {}, 0, result};
  Epilogue<C> out(launch, smem, warp, lane);
  for (int index = cluster; index < order.count; index += launch.clusters) {
    out.tile = order.At(index, place);
    math.scale_row = (C.skinny() ? out.tile.row0 : out.tile.col0) % 128;
    math.Run(range.end - range.begin);
    if (launch.split == 1) {
      StoreWhole<C>(out, result);
    } else if constexpr (C.splits()) {
      StoreSplit<C>(launch, smem, place, out, result, thread);
    }
  }
  // Peers may still read this CTA's partial sums, or arrive on its barriers.
  if (C.multicast() > 1 || launch.split > 1) {
    ptx::ClusterArrive();
    ptx::ClusterWait();
  }
}

template <uint64_t kCode>
__global__ void __launch_bounds__(Decode(kCode).threads(), Decode(kCode).ctas_per_sm)
    Fp8Gemm(const __grid_constant__ GemmLaunch launch) {
  constexpr GemmConfig C = Decode(kCode);
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int cluster = blockIdx.x / (C.multicast() * launch.split);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;

  if (warp == kProducerWarp && threadIdx.x % 32 == 0) {
    ptx::PrefetchTensorMap(&launch.row_map);
    ptx::PrefetchTensorMap(&launch.col_map);
    ptx::PrefetchTensorMap(&launch.scale_map);
    for (int i = 0; i < C.stages; ++i) {
      ptx::MbarrierInit(smem.Full(i), kFullArrivals<C>);
      ptx::MbarrierInit(smem.Empty(i), C.math_threads() / 32 * ClusterPlace<C>::kWriters);
    }
    ptx::FenceMbarrierInit();
  }
  if constexpr (C.multicast() > 1) {
    ptx::ClusterArrive();
    ptx::ClusterWait();
  } else {
    __syncthreads();
  }
  ptx::GridDependencyLaunch();
  ptx::GridDependencyWait();

  if (warp >= kProducerWarp) {
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersDown<40>();
    if (warp == kProducerWarp) Produce<C>(launch, smem, place, cluster, threadIdx.x % 32);
  } else {
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<232>();
    Consume<C>(launch, smem, place, cluster);
  }
}

// The host side of a family: one row of functions for each config.
template <GemmConfig C>
struct Entry {
  static_assert(Check<C>());
  static constexpr auto* kKernel = Fp8Gemm<Encode(C)>;

  static cudaError_t Prepare() {
    return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                C.smem_bytes());
  }
  static cudaLaunchConfig_t Config(int ctas, int cluster_size, cudaLaunchAttribute* cluster) {
    cluster->id = cudaLaunchAttributeClusterDimension;
    cluster->val.clusterDim.x = cluster_size;
    cluster->val.clusterDim.y = 1;
    cluster->val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(ctas);
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = C.smem_bytes();
    config.attrs = cluster;
    config.numAttrs = 1;
    return config;
  }
  static cudaError_t Launch(const GemmLaunch& launch, cudaStream_t stream) {
    cudaLaunchAttribute attributes[2];
    const int cluster_size = C.multicast() * launch.split;
    cudaLaunchConfig_t config = Config(launch.clusters * cluster_size, cluster_size, attributes);
    config.stream = stream;
    if (launch.programmatic) {
      attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[1].val.programmaticStreamSerializationAllowed = 1;
      config.numAttrs = 2;
    }
    return cudaLaunchKernelEx(&config, kKernel, launch);
  }
  static cudaError_t MaxClusters(int cluster_size, int* clusters) {
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t config = Config(cluster_size, cluster_size, &attribute);
    return cudaOccupancyMaxActiveClusters(clusters, kKernel, &config);
  }
};

// Tables of functions over a constexpr array of configs.
template <const auto& kConfigs, int... I>
struct FamilyTable {
  static cudaError_t Prepare(int config) {
    static constexpr cudaError_t (*kTable[])() = {Entry<kConfigs[I]>::Prepare...};
    return kTable[config]();
  }
  static cudaError_t Launch(int config, const GemmLaunch& launch, cudaStream_t stream) {
    static constexpr cudaError_t (*kTable[])(const GemmLaunch&,
                                             cudaStream_t) = {Entry<kConfigs[I]>::Launch...};
    return kTable[config](launch, stream);
  }
  static cudaError_t MaxClusters(int config, int cluster_size, int* clusters) {
    static constexpr cudaError_t (*kTable[])(int, int*) = {Entry<kConfigs[I]>::MaxClusters...};
    return kTable[config](cluster_size, clusters);
  }
};

template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
  using Type = Indices<I...>;
};

template <const auto& kConfigs, int... I>
constexpr GemmFamilyEntry MakeFamily(const char* name, Indices<I...>) {
  using Table = FamilyTable<kConfigs, I...>;
  return {name, kConfigs, sizeof...(I), Table::Prepare, Table::Launch, Table::MaxClusters};
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_FP8_GEMM_CUH_
