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
  static_assert(C.k_groups == 1 || (C.k_groups == 2 && C.k_blocks % 2 == 0), "halves of a stage");
  static_assert(C.groups * C.k_groups <= 3, "registers");
  static_assert(C.rows % (64 * C.groups) == 0, "a WGMMA has 64 rows");
  static_assert(C.cols % 8 == 0, "WGMMA's columns");
  static_assert(C.rows <= 256 && C.cols <= 256, "a tensor map's box has at most 256 rows");
  static_assert(C.stages >= 2, "a ring");
  static_assert(C.rows / C.share_rows % 8 == 0 && C.cols / C.share_cols % 8 == 0,
                "slices keep to groups of 8 swizzled rows");
  static_assert(C.stages <= 31, "a lane of the producer warp initialises each stage");
  static_assert(kBScales<C> <= 32, "a lane of the producer warp fetches each");
  static_assert(!C.stores_tile || (!C.skinny() && C.k_groups == 1 && C.cols % kStoreCols == 0 &&
                                   C.row_subs() * C.cols / kStoreCols <= 32),
                "boxes of 64 columns, a lane for each");
  static_assert(C.k_blocks == 1 || C.multicast() == 1,
                "a slice of several k blocks does not land where the whole one would");
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

// The same, the two of each pair exchanged: how results travel between threads. Four registers that
// are stored together are neighbours; in this order a result lies in a register of the other parity
// than the accumulator that is added to it, and promotion has no register bank conflicts.
template <GemmConfig C>
__device__ __forceinline__ float4 TravelChunkOf(const float (&result)[C.result_regs()], int i) {
  return make_float4(result[4 * i + 1], result[4 * i], result[4 * i + 3], result[4 * i + 2]);
}

// What one CTA of a cluster adds up and stores: chunks [begin, end) of every sub-tile, a run of
// `stride` bytes from each part.
struct Share {
  uint32_t from;  // the inbox
  int stride = 0;
  int begin = 0;
  int end = 0;
  int subs = 1;  // sub-tiles
};

// The cluster's k parts of one tile meet: every thread sends each CTA the chunks that it adds up,
// out of registers, where the same thread there takes them from. Called once, after the last use of
// the ring, which becomes the inbox. A CTA may leave as soon as its own share is stored: what it
// sent is on its way, and nobody reads its memory.
template <GemmConfig C>
__device__ __forceinline__ Share Exchange(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                          const ClusterPlace<C>& place,
                                          const float (&result)[C.result_regs()], int thread) {
  constexpr int kUnit = C.store_threads() * 16;  // bytes of one chunk, all warpgroups
  constexpr int kChunks = Epilogue<C>::kChunks;
  const KSplit& split = launch.split;
  Share share = {.from = smem.base,
                 .begin = split.chunks[place.k_part],
                 .end = split.chunks[place.k_part + 1],
                 .subs = C.row_subs()};
  share.stride = C.row_subs() * (share.end - share.begin) * kUnit;
  if (thread == 0) ptx::MbarrierArriveExpectTx(smem.Inbox(), (split.parts - 1) * share.stride);
  ptx::ClusterArriveRelaxed();  // done with this CTA's ring
  ptx::ClusterWait();
#pragma unroll
  for (int i = 0; i < C.result_regs() / 4; ++i) {
    const int sub = i / kChunks;
    const int chunk = i % kChunks;
    const int owner = ((chunk + 1) * split.parts - 1) / kChunks;  // whose chunks these are
    const int first = split.chunks[owner];
    const int count = split.chunks[owner + 1] - first;
    const uint32_t at = share.from + thread * 16 +
                        ((place.k_part * C.row_subs() + sub) * count + chunk - first) * kUnit;
    const float4 v = TravelChunkOf<C>(result, i);
    if (owner == place.k_part) {
      ptx::StoreShared4(at, v);
    } else {
      const int rank = owner * C.multicast() + place.rank % C.multicast();
      ptx::StoreToRank4(ptx::MapToRank(at, rank), v, ptx::MapToRank(smem.Inbox(), rank));
    }
  }
  if (share.begin < share.end) ptx::MbarrierWait(smem.Inbox(), 0);
  return share;
}

// Always adds in the same order, so that the sum is the same in every run.
template <GemmConfig C>
__device__ __forceinline__ void StoreSum(const Epilogue<C>& out, const Share& share, int parts,
                                         int thread) {
  constexpr int kUnit = C.store_threads() * 16;
  using Out = Epilogue<C>;
  const int step = out.general ? Out::kStepF32 : Out::kStep;
#pragma unroll 1
  for (int sub = 0; sub < share.subs; ++sub) {
#pragma unroll 1
    for (int first = share.begin; first < share.end; first += step) {
      const int last = min(first + step, share.end);
      out.Sync();
#pragma unroll 2
      for (int chunk = first; chunk < last; ++chunk) {
        uint32_t at = share.from + thread * 16 +
                      (sub * (share.end - share.begin) + chunk - share.begin) * kUnit;
        float4 sum = ptx::LoadShared4(at);
#pragma unroll 4
        for (int part = 1; part < parts; ++part) {
          at += share.stride;
          const float4 v = ptx::LoadShared4(at);
          sum.x += v.x;
          sum.y += v.y;
          sum.z += v.z;
          sum.w += v.w;
        }
        sum = make_float4(sum.y, sum.x, sum.w, sum.z);
        out.general ? out.StageF32(chunk, first, sum) : out.Stage(chunk, first, sum);
      }
      out.Sync();
      out.general ? out.Finish(sub, first, last) : out.CopyOut(sub, first, last);
    }
  }
}

// Every warp rounds its rows into boxes of 16 x 64, the k-th 16 bytes of a row where the 128-byte
// swizzle wants them, and starts their copies: they leave while the next tile multiplies.
template <GemmConfig C>
__device__ __forceinline__ void StoreByCopy(const GemmLaunch& launch, const Epilogue<C>& out,
                                            const float (&result)[C.result_regs()]) {
  static_assert(C.cols % kStoreCols == 0);
  constexpr int kAcross = C.cols / kStoreCols;
  constexpr int kBoxes = C.row_subs() * kAcross;
  constexpr int kBoxBytes = kStoreRows * kStoreCols * 2;
  const uint32_t boxes = out.tile_staging + (out.group * 4 + out.warp) * kBoxes * kBoxBytes;
  ptx::TensorStoreWaitRead();  // of the tile before
  __syncwarp();
  // Lane l gives row l % 16 of one chunk of 8 columns or, from lane 16 on, of the next.
  const uint32_t row =
      boxes + out.lane % 16 * (kStoreCols * 2) + ((out.lane / 16 ^ out.lane % 8) << 4);
#pragma unroll
  for (int pair = 0; pair < kBoxes * kStoreCols / 16; ++pair) {
    const float4 left = ChunkOf<C>(result, 2 * pair);
    const float4 right = ChunkOf<C>(result, 2 * pair + 1);
    ptx::StMatrix4((row ^ pair % 4 << 5) + pair / 4 * kBoxBytes,
                   Pack2(left.x, left.y, out.args.out), Pack2(left.z, left.w, out.args.out),
                   Pack2(right.x, right.y, out.args.out), Pack2(right.z, right.w, out.args.out));
  }
  ptx::FenceProxyAsync();
  __syncwarp();
  if (ptx::ElectOne()) {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      ptx::TensorStore(&launch.store_map, boxes + box * kBoxBytes,
                       out.tile.col0 + box % kAcross * kStoreCols,
                       out.SubRow(box / kAcross) + out.warp * kStoreRows, 0, out.tile.batch);
    }
    ptx::TensorStoreCommit();
  }
}

template <GemmConfig C>
__device__ __forceinline__ void StoreWhole(const GemmLaunch& launch, const Epilogue<C>& out,
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
  if constexpr (C.stores_tile) {
    if (launch.stores_by_copy) return StoreByCopy<C>(launch, out, result);
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

// The second k group's results join the first's: a thread of one leaves them where the thread of
// the same place in the other finds them.
template <GemmConfig C>
struct Fold {
  static constexpr int kFull = 5;  // named barriers
  static constexpr int kFree = 6;
  static constexpr int kThreads = C.math_threads();

  static __device__ __forceinline__ void Give(uint32_t at, const float (&result)[C.result_regs()]) {
    ptx::NamedBarrier(kFree, kThreads);
#pragma unroll
    for (int i = 0; i < C.result_regs() / 4; ++i) {
      ptx::StoreShared4(at + i * C.store_threads() * 16, TravelChunkOf<C>(result, i));
    }
    ptx::NamedArrive(kFull, kThreads);
  }
  static __device__ __forceinline__ void Take(uint32_t at, float (&result)[C.result_regs()]) {
    ptx::NamedBarrier(kFull, kThreads);
#pragma unroll
    for (int i = 0; i < C.result_regs() / 4; ++i) {
      const float4 v = ptx::LoadShared4(at + i * C.store_threads() * 16);
      result[4 * i + 1] += v.x;
      result[4 * i] += v.y;
      result[4 * i + 3] += v.z;
      result[4 * i + 2] += v.w;
    }
  }
  static __device__ __forceinline__ void Free() { ptx::NamedArrive(kFree, kThreads); }
};

template <GemmConfig C>
__device__ __forceinline__ void Consume(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                        const ClusterPlace<C>& place, int cluster) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  const int thread = threadIdx.x % C.store_threads();
  const bool stores = warp < C.store_threads() / 32;
  const uint32_t fold = smem.base + SmemLayout<C>::kFold + thread * 16;
  const KRange range = KRange::Of(launch.split, place.k_part);
  const int steps = (range.end - range.begin) * C.blocks_of_group();
  float result[C.result_regs()];
  Math<C> math(smem, place, warp, lane, result);
  if constexpr (C.k_groups > 1) {
    if (!stores) {
      for (int index = cluster; index < launch.tiles.count; index += launch.clusters) {
        math.Run(steps);
        Fold<C>::Give(fold, result);
      }
      if (launch.split.parts > 1) {  // the exchange's barrier is the whole cluster's
        ptx::ClusterArriveRelaxed();
        ptx::ClusterWait();
      }
      return;
    }
    Fold<C>::Free();
  }
  Epilogue<C> out(launch, smem, warp, lane);
  // The first round multiplies nothing and stores outside D: it brings the store's code into the
  // instruction cache while the first tiles are on their way.
  int rehearsal = 1;
  asm volatile("" : "+r"(rehearsal));  // else the compiler makes the first round a copy of its own
  for (int index = cluster; index < launch.tiles.count;) {
    if (rehearsal) {
      out.tile = {kBeyond, kBeyond, 0};
#pragma unroll
      for (int i = 0; i < C.result_regs(); ++i) result[i] = 0.0f;
    } else {
      out.tile = TileAt<C>(launch.tiles, index, place);
      math.Run(steps);
      index += launch.clusters;
      if constexpr (C.k_groups > 1) {
        Fold<C>::Take(fold, result);
        if (index < launch.tiles.count) Fold<C>::Free();
      }
    }
    if (launch.split.parts == 1) {
      StoreWhole<C>(launch, out, result);
    } else {
      const uint32_t staging = smem.base + SmemLayout<C>::kStore;
      Share share = {.from = staging, .end = 1};
      if (!rehearsal) share = Exchange<C>(launch, smem, place, result, thread);
      if (share.begin < share.end) {
        StoreSum<C>(out, share, launch.split.parts, thread);
      }
    }
    rehearsal = 0;
    __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
  }
  if constexpr (C.stores_tile) ptx::TensorStoreWait();
  // Peers may still arrive on this CTA's barriers.
  if (C.multicast() > 1 && launch.split.parts == 1) {
    ptx::ClusterArriveRelaxed();
    ptx::ClusterWait();
  }
}

// Warp w asks for the w-th 64 bytes of the parameters behind the maps: cold, they come one after
// the other, and the producer needs all of them before it starts its first copy.
__device__ __forceinline__ void TouchParameters(const GemmLaunch& launch, int warp) {
  constexpr int kFirst = offsetof(GemmLaunch, args) / 4;
  constexpr int kWords = sizeof(GemmLaunch) / 4;
  const uint32_t* words = reinterpret_cast<const uint32_t*>(&launch);
  asm volatile("" ::"r"(words[min(kFirst + warp * 16, kWords - 1)]));
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
    TouchParameters(launch, warp);
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
