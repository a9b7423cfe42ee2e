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
  static_assert(C.groups >= 1 && C.groups <= 3, "registers: at most three math warpgroups");
  static_assert(C.rows % (64 * C.groups) == 0, "a WGMMA has 64 rows");
  static_assert(C.cols % 8 == 0 && C.sub_cols() % 8 == 0 && C.sub_cols() <= 256, "WGMMA's columns");
  static_assert(C.rows <= 256 && C.cols <= 256, "a tensor map's box has at most 256 rows");
  static_assert(C.stages >= 2, "a ring");
  static_assert(C.rows / C.share_rows % 8 == 0 && C.cols / C.share_cols % 8 == 0,
                "slices keep to groups of 8 swizzled rows");
  static_assert(C.stages <= 31, "a lane of the producer warp initialises each stage");
  static_assert(kBScales<C> <= 32, "a lane of the producer warp fetches each");
  static_assert(C.smem_bytes() <= kMaxSmemBytes, "a block's shared memory");
  static_assert(C.ctas_per_sm * (C.smem_bytes() + kReservedSmem) <= kSmemPerSm, "an SM's");
  static_assert(C.result_regs() + C.accumulator_regs() <= (C.groups == 3 ? 128 : 200),
                "a thread's registers");
  return true;
}

// The i-th four of a thread's results: one chunk of the epilogue.
template <GemmConfig C>
__device__ __forceinline__ float4 ChunkOf(const float (&result)[C.result_regs()], int i) {
  return make_float4(result[4 * i], result[4 * i + 1], result[4 * i + 2], result[4 * i + 3]);
}

// The cluster's k parts of one tile meet: every CTA sends each of its chunks to the CTA that adds
// it up, always in the order of the parts, so that the sum is the same in every run. Called once,
// after the last use of the ring.
template <GemmConfig C>
__device__ __forceinline__ void StoreSplit(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                           const ClusterPlace<C>& place, const Epilogue<C>& out,
                                           const float (&result)[C.result_regs()], int thread) {
  using Out = Epilogue<C>;
  constexpr int kUnit = C.math_threads() * 16;  // bytes of one chunk, all warpgroups
  const KSplit& split = launch.split;
  const int begin = split.chunks[place.k_part];
  const int end = split.chunks[place.k_part + 1];
  const int peer = place.rank % C.multicast();
  if (thread == 0) {
    ptx::MbarrierArriveExpectTx(smem.Inbox(), split.parts * (end - begin) * C.row_subs() * kUnit);
  }
  // The ring of every CTA is free from here on: it is the inbox.
  ptx::ClusterArriveRelaxed();
  ptx::ClusterWait();
  int owner = 0;
#pragma unroll
  for (int chunk = 0; chunk < Out::kChunks; ++chunk) {
    while (chunk >= split.chunks[owner + 1]) ++owner;
    const int share = split.chunks[owner + 1] - split.chunks[owner];
    const int rank = owner * C.multicast() + peer;
    const uint32_t barrier = ptx::MapToRank(smem.Inbox(), rank);
#pragma unroll
    for (int sub = 0; sub < C.row_subs(); ++sub) {
      const int place_in_inbox =
          (place.k_part * C.row_subs() + sub) * share + chunk - split.chunks[owner];
      const uint32_t at = smem.base + place_in_inbox * kUnit + thread * 16;
      ptx::StoreRemote4(ptx::MapToRank(at, rank), ChunkOf<C>(result, sub * Out::kChunks + chunk),
                        barrier);
    }
  }
  if (begin == end) return;
  ptx::MbarrierWait(smem.Inbox(), 0);
  const int step = out.general ? Out::kStepF32 : Out::kStep;
  for (int sub = 0; sub < C.row_subs(); ++sub) {
    for (int first = begin; first < end; first += step) {
      const int last = min(first + step, end);
      out.Sync();
      for (int chunk = first; chunk < last; ++chunk) {
        const int share = (end - begin) * kUnit;
        uint32_t at = smem.base + sub * share + (chunk - begin) * kUnit + thread * 16;
        float4 sum = ptx::LoadShared4(at);
        for (int part = 1; part < split.parts; ++part) {
          at += C.row_subs() * share;
          const float4 v = ptx::LoadShared4(at);
          sum.x += v.x;
          sum.y += v.y;
          sum.z += v.z;
          sum.w += v.w;
        }
        out.general ? out.StageF32(chunk, first, sum) : out.Stage(chunk, first, sum);
      }
      out.Sync();
      out.general ? out.Finish(sub, first, last) : out.CopyOut(sub, first, last);
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
        out.Sync();
#pragma unroll
        for (int chunk = first; chunk < last; ++chunk) {
          out.StageF32(chunk, first, ChunkOf<C>(result, sub * Out::kChunks + chunk));
        }
        out.Sync();
        out.Finish(sub, first, last);
      }
    }
    return;
  }
#pragma unroll
  for (int sub = 0; sub < C.row_subs(); ++sub) {
#pragma unroll
    for (int first = 0; first < Out::kChunks; first += Out::kStep) {
      const int last = min(first + Out::kStep, Out::kChunks);
      out.Sync();
#pragma unroll
      for (int chunk = first; chunk < last; ++chunk) {
        out.Stage(chunk, first, ChunkOf<C>(result, sub * Out::kChunks + chunk));
      }
      out.Sync();
      out.CopyOut(sub, first, last);
    }
  }
}

template <GemmConfig C>
__device__ __forceinline__ void Consume(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster) {
  const int thread = threadIdx.x;
  const int warp = __shfl_sync(0xffffffff, thread / 32, 0);
  const int lane = thread % 32;
  const KRange range = KRange::Of(launch.split, place.k_part);
  float result[C.result_regs()];
  Math<C> math(smem, place, warp, lane, result);
  Epilogue<C> out(launch, smem, warp, lane);
  math.GiveFirstTurn();
  // The first round multiplies nothing and stores outside D: it brings the store's code into the
  // instruction cache while the first tiles are on their way.
  int rehearsal = launch.split.parts == 1;
  asm volatile("" : "+r"(rehearsal));  // else the compiler makes the first round a copy of its own
  for (int index = cluster; index < launch.tiles.count;) {
    if (rehearsal) {
      out.tile = {kBeyond, kBeyond, 0};
#pragma unroll
      for (int i = 0; i < C.result_regs(); ++i) result[i] = 0.0f;
    } else {
      out.tile = TileAt<C>(launch.tiles, index, place);
      math.Run((range.end - range.begin) * C.k_blocks);
      index += launch.clusters;
    }
    rehearsal = 0;
    if (launch.split.parts == 1) {
      StoreWhole<C>(out, result);
    } else {
      StoreSplit<C>(launch, smem, place, out, result, thread);
    }
  }
  // Peers may still arrive on this CTA's barriers.
  if constexpr (C.multicast() > 1) {
    ptx::ClusterArriveRelaxed();
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
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;
  constexpr int kReady = 1;  // named barrier: the producer warp arrives, the math warps wait

  if (__builtin_expect(warp >= kProducerWarp, 1)) {  // its code first: it starts first
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersDown<C.producer_registers()>();
    if (warp > kProducerWarp) return;
    const int lane = threadIdx.x % 32;
    if (lane == 0) {
      ptx::PrefetchTensorMap(&launch.row_map);
      ptx::PrefetchTensorMap(&launch.col_map);
      ptx::PrefetchTensorMap(&launch.scale_map);
    }
    if (lane < C.stages) {
      ptx::MbarrierInit(smem.Full(lane), kFullArrivals<C>);
      ptx::MbarrierInit(smem.Empty(lane), C.math_threads() / 32 * ClusterPlace<C>::kWriters);
    }
    if (lane == 31) ptx::MbarrierInit(smem.Inbox(), 1);
    ptx::FenceMbarrierInit();
    __syncwarp();
    ptx::NamedArrive(kReady, C.math_threads() + 32);
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    Produce<C>(launch, smem, place, ptx::ClusterId(), lane);
    ptx::GridDependencyLaunch();
  } else {
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<C.math_registers()>();
    ptx::NamedBarrier(kReady, C.math_threads() + 32);
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    Consume<C>(launch, smem, place, ptx::ClusterId());
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
    const int cluster_size = C.multicast() * launch.split.parts;
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
