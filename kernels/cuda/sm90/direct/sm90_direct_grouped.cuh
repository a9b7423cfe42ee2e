// Grouped matmuls in BF16, FP16, INT8 and E4M3 without block scales: one kernel walks over the
// tiles of all groups. The weights are WGMMA's row side, 128 of their rows a CTA, and a tile's rows
// of A its columns: as many as the tile has, in steps of 32, so that groups of any size waste
// little. Weights of a group with up to 256 rows are read once.
//
// A ring serves thin tiles, too, of groups with up to 64 rows: a stage has room for a k block of a
// wide tile, or for two of a thin one. Two CTAs of a cluster take neighbours along the weights'
// rows, and share A.
//
// A tile begins at any row. What it loads behind its end are other rows or zeros: results of theirs
// stay in registers, since each row's products are its own.

#pragma once

#include "kernels/cuda/sm90/direct/sm90_direct_group_math.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_group_producer.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_group_scales.cuh"
#include "kernels/cuda/sm90/direct/sm90_direct_group_store.cuh"
#include "kernels/cuda/sm90/sm90_give_back.cuh"

namespace gemmd::kernels::cuda {

// The math warps' way through the tiles: wide ones, then thin ones, as the producer goes it.
template <GemmConfig C, GemmConfig T, bool kFinishes>
__device__ __forceinline__ void ConsumeGroups(const DirectGroupedLaunch& launch,
                                              const DirectWalk& walk, int cluster, int clusters,
                                              GroupStore<C, T, kFinishes>& store) {
  const int wide_tiles = walk.Total(kWideTile), tiles = wide_tiles + walk.Total(kThinTile);
  for (int index = cluster; index < tiles; index += clusters) {
    const bool wide = index < wide_tiles;
    const GroupStop stop =
        wide ? walk.At(kWideTile, index) : walk.At(kThinTile, index - wide_tiles);
    if constexpr (kFinishes) store.FetchBias(stop);
    GroupScales<C> scales;
    if constexpr (C.scales_results()) {
      const int n = (stop.n * C.share_cols + store.place.row) * C.rows;
      scales.Load(launch, stop.rows, n + (store.out.group * 4 + store.out.warp) * 16,
                  store.out.lane);
    }
    if (wide) {
      store.math.RunWide(launch.k_blocks, BoxesOf<kRowsAWideBox>(stop.rows, C.cols));
    } else {
      store.math.template Run<T.cols, T.k_blocks>((launch.k_blocks + T.k_blocks - 1) / T.k_blocks);
    }
    if constexpr (C.scales_results()) {
      scales.Apply(store.math.result, stop.rows.row_end - stop.rows.row0, store.out.lane);
    }
    store.Store(stop);
  }
}

// The walk's table lies behind what SmemLayout has.
template <GemmConfig C>
inline constexpr uint32_t kWalkTable = SmemLayout<C>::kBarriers + C.stages * 16 + 16;
template <GemmConfig C>
inline constexpr int kDirectGroupedSmem = C.smem_bytes() + DirectWalk::kBytes;

template <GemmConfig C, GemmConfig T>
constexpr bool CheckDirectGrouped() {
  static_assert(!C.scales_blocks() && !C.skinny() && T.skinny() && C.mma == T.mma);
  static_assert(C.rows == T.rows && C.groups == T.groups && C.k_groups == 1 && T.k_groups == 1);
  static_assert(T.stage_bytes() == C.stage_bytes() && C.stages == T.stages && C.k_blocks == 1,
                "one ring");
  static_assert(T.store_bytes() <= C.store_bytes(), "one staging area");
  static_assert(C.cols % T.cols == 0 && T.cols % kRowsAWideBox == 0, "pieces of a wide tile");
  static_assert(C.share_rows == 1, "the weights are each CTA's own");
  static_assert(kDirectGroupedSmem<C> <= kMaxSmemBytes, "a block's shared memory");
  return true;
}

// `kTable`: matrices lie apart.
template <uint64_t kWide, uint64_t kThin, bool kTable, bool kFinishes>
__global__ void __launch_bounds__(Decode(kWide).threads(), 1)
    DirectGrouped(const __grid_constant__ DirectGroupedLaunch launch) {
  constexpr GemmConfig C = Decode(kWide), T = Decode(kThin);
  static_assert(CheckDirectGrouped<C, T>());
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int cluster = blockIdx.x / C.multicast(), clusters = gridDim.x / C.multicast();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  constexpr int kProducerWarp = C.math_threads() / 32;
  const DirectWalk walk = {
      launch,
      reinterpret_cast<int*>(raw_smem + (smem.base - ptx::SmemAddress(raw_smem)) + kWalkTable<C>)};
  if constexpr (C.moves_registers()) {
    if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<C.producer_registers()>();
  }
  if (warp >= kProducerWarp) {
    if (warp > kProducerWarp) return;
    if (ptx::ElectOne()) {
      for (const CUtensorMap* map :
           {&launch.wide_a, &launch.full_a, &launch.wide_b, &launch.thin_a, &launch.thin_b}) {
        ptx::PrefetchTensorMap(map);
      }
#pragma unroll
      for (int stage = 0; stage < C.stages; ++stage) {
        ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
        ptx::MbarrierInit(smem.Empty(stage),
                          C.stage_readers() * kReleasingLanes * ClusterPlace<C>::kWriters);
      }
      ptx::FenceMbarrierInit();
    }
    __syncwarp();
    // At once: the kernel behind this one waits for its end.
    ptx::GridDependencyLaunch();
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);  // the ring, and the walk's table
    GroupProducer<C, T, kTable> producer = {launch, smem, place};
    const int index = producer.template Walk<true>(walk, cluster, clusters);
    producer.template Walk<false>(walk, index, clusters);
    AwaitGivenBack<C>(smem, producer.at);
  } else {
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<C.math_registers()>();
    // Before the named barrier: the producer comes to that when the whole cluster has arrived here.
    if constexpr (C.multicast() > 1) ptx::ClusterArriveRelaxed();
    ptx::GridDependencyWait();
    walk.Make<C.math_threads() / 32>(warp, lane, clusters);
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    if constexpr (C.multicast() > 1) ptx::ClusterWait();
    Sum<C> result[C.result_regs()];
    typename GroupMathOf<C, T>::Type math(smem, place, warp, lane, result);
    TileBounds bounds(launch.args);
    constexpr GemmConfig kOut = GroupStore<C, T, kFinishes>::kThin;
    Epilogue<kOut, true> out(bounds.launch, SmemLayout<kOut>{smem.base}, warp, lane);
    GroupStore<C, T, kFinishes> store = {launch, smem, place, math, bounds, out};
    ConsumeGroups<C, T>(launch, walk, cluster, clusters, store);
  }
}

// The kernels of a pair of configs.
template <GemmConfig C, GemmConfig T, bool kFinishes>
struct DirectGroupedMember {
  static constexpr auto* kKernel = DirectGrouped<Encode(C), Encode(T), false, kFinishes>;
  static constexpr auto* kOfTables = DirectGrouped<Encode(C), Encode(T), true, kFinishes>;

  static cudaError_t Prepare() {
    for (auto* kernel : {kKernel, kOfTables}) {
      const cudaError_t code = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDirectGroupedSmem<C>);
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
  static cudaError_t Launch(const DirectGroupedLaunch& launch, int ctas, bool programmatic,
                            cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = kDirectGroupedSmem<C>;
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = C.multicast();
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = C.multicast() > 1 ? 1 : 0;
    if (programmatic) {
      cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
      overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      overlap.val.programmaticStreamSerializationAllowed = 1;
    }
    return cudaLaunchKernelEx(&config, launch.b_maps[kThinTile] != nullptr ? kOfTables : kKernel,
                              launch);
  }
};

}  // namespace gemmd::kernels::cuda
