// Grouped matmuls in BF16 and FP16: one kernel walks over both lists that the directory made, tiles
// of groups with many rows first. Its ring goes on from one list to the other: a stage has as many
// bytes for a k block of a wide tile as for two of a thin one.
//
// A tile begins at any row. What it loads behind its group's end are other rows or zeros: results
// of theirs stay in registers, since each row's products are its own. CTAs of a cluster take
// neighbours: along n, or of a wide tile along the rows.

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_DIRECT_GROUPED_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_DIRECT_GROUPED_CUH_

#include "kernels/cuda/matmul/grouped_direct_launch.h"
#include "kernels/cuda/ptx/tensor_map.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {

// Clusters' tiles of a list in bands that go through the weights together, so that tiles of one
// group find its weights in L2, and tiles of one n the rows. `n` counts clusters' tiles.
struct GroupStop {
  GroupTile rows;
  int n;
};
__device__ __forceinline__ GroupStop StopAt(const GroupWalk& walk, int index, int count) {
  const int band = Divide(index, walk.per_band);
  const int inside = index - band * static_cast<int>(walk.per_band.value);
  const int first = band * walk.band;
  const int left = count - first;
  int n, m;
  if (left >= walk.band) {
    n = Divide(inside, walk.band_rows);
    m = inside - n * walk.band;
  } else {
    n = inside / left;
    m = inside - n * left;
  }
  const int4 tile = *reinterpret_cast<const int4*>(walk.list.tiles + first + m);
  return {{tile.x, tile.y, tile.z, tile.w}, n};
}

// Where no group can have many rows, nobody makes that list.
__device__ __forceinline__ int WideCount(const DirectGroupedLaunch& launch) {
  return launch.wide.list.count != nullptr ? *launch.wide.list.count : 0;
}

// This CTA's tile of a cluster's.
template <GemmConfig C>
__device__ __forceinline__ Tile WideTileOf(const GroupStop& at, const ClusterPlace<C>& place) {
  return {at.rows.row0 + place.row * C.rows, (at.n * C.share_rows + place.col) * C.cols,
          at.rows.item};
}
// Of a thin one, whose row side are the weights; peers lie along n whatever they share elsewhere.
template <GemmConfig T>
__device__ __forceinline__ Tile ThinTileOf(const GroupStop& at, int rank) {
  return {(at.n * T.multicast() + rank) * T.rows, at.rows.row0, at.rows.item};
}

// A group's matrix: by a map of all of them, or by one of its own, of which the copy engine is told
// when its group comes first: it was made just now.
template <bool kTable>
struct GroupMaps {
  const CUtensorMap* all;
  const CUtensorMap* each;
  int known = -1;

  struct Matrix {
    const CUtensorMap* map;
    int item;
  };
  __device__ __forceinline__ Matrix Of(int group) {
    if constexpr (!kTable) return {all, group};
    if (group != known) ptx::AcquireTensorMap(each + group);
    known = group;
    return {each + group, 0};
  }
};

template <GemmConfig C, GemmConfig T, bool kTable>
__device__ __forceinline__ void ProduceDirect(const DirectGroupedLaunch& launch,
                                              const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, int cluster,
                                              int clusters) {
  RingPosition<C.stages> at;
  int index = cluster;
  {
    const int count = WideCount(launch);
    const int tiles = count * launch.wide.n_tiles;
    GroupMaps<kTable> maps = {&launch.wide_b, launch.wide.b_maps};
    for (; index < tiles; index += clusters) {
      const GroupStop stop = StopAt(launch.wide, index, count);
      const Tile tile = WideTileOf<C>(stop, place);
      const auto b = maps.Of(stop.rows.group);
#pragma unroll 1
      for (int block = 0; block < launch.k_blocks; ++block) {
        ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
        if (ptx::ElectOne()) {
          const uint32_t full = smem.Full(at.stage);
          const int x = block * kRowBytes;
          ptx::MbarrierArriveExpectTx(full, C.stage_bytes());
          if constexpr (C.share_rows == 1) {
            ptx::TensorLoad(&launch.wide_a, full, smem.Rows(at.stage), x, tile.row0, 0, tile.batch,
                            ptx::kEvictNormal);
          } else {
            const int row = place.col * (C.rows / C.share_rows);
            ptx::TensorLoadMulticast(&launch.wide_a, full, smem.Rows(at.stage) + row * kRowBytes, x,
                                     tile.row0 + row, 0, tile.batch, place.RowPeers(),
                                     ptx::kEvictNormal);
          }
          if constexpr (C.share_cols == 1) {
            ptx::TensorLoad(b.map, full, smem.Cols(at.stage), x, tile.col0, 0, b.item,
                            ptx::kEvictNormal);
          } else {
            const int col = place.row * (C.cols / C.share_cols);
            ptx::TensorLoadMulticast(b.map, full, smem.Cols(at.stage) + col * kRowBytes, x,
                                     tile.col0 + col, 0, b.item, place.ColPeers(),
                                     ptx::kEvictNormal);
          }
        }
        __syncwarp();
        at.Advance();
      }
    }
    index -= tiles;
  }
  const SmemLayout<T> thin{smem.base};
  const int count = *launch.thin.list.count;
  const int tiles = count * launch.thin.n_tiles;
  GroupMaps<kTable> maps = {&launch.thin_b, launch.thin.b_maps};
  for (; index < tiles; index += clusters) {
    const GroupStop stop = StopAt(launch.thin, index, count);
    const Tile tile = ThinTileOf<T>(stop, place.rank);
    const auto b = maps.Of(stop.rows.group);
    const int left = stop.rows.row_end - stop.rows.row0;
    const int boxes = (min(left, T.cols) + kRowsABox - 1) / kRowsABox;
#pragma unroll 1
    for (int block = 0; block < launch.k_blocks; block += T.k_blocks) {
      ptx::MbarrierWait(thin.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) {
        const uint32_t full = thin.Full(at.stage);
        const uint32_t rows = thin.Rows(at.stage), cols = thin.Cols(at.stage);
        ptx::MbarrierArriveExpectTx(full, T.k_blocks * (T.row_bytes() + boxes * kABoxBytes));
        // Both k blocks at once make longer runs of memory, but take whole ones.
        if (launch.whole_blocks) {
          ptx::TensorLoad(b.map, full, rows, 0, tile.row0, block, b.item, ptx::kEvictFirst);
        } else {
#pragma unroll
          for (int i = 0; i < T.k_blocks; ++i) {
            ptx::TensorLoad(b.map, full, rows + i * T.row_bytes(), (block + i) * kRowBytes,
                            tile.row0, 0, b.item, ptx::kEvictFirst);
          }
        }
#pragma unroll
        for (int i = 0; i < T.k_blocks; ++i) {
#pragma unroll 1
          for (int box = 0; box < boxes; ++box) {
            ptx::TensorLoad(&launch.thin_a, full, cols + i * T.col_bytes() + box * kABoxBytes,
                            (block + i) * kRowBytes, tile.col0 + box * kRowsABox, 0, tile.batch,
                            ptx::kEvictLast);
          }
        }
      }
      __syncwarp();
      at.Advance();
    }
  }
}

// A warpgroup without rows lets the stages of a tile pass.
template <GemmConfig C>
__device__ __forceinline__ void Pass(DirectMath<C>& math, int steps) {
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    ptx::MbarrierWait(math.smem.Full(math.issue.stage), math.issue.parity);
    math.issue.Advance();
    math.Release();
  }
}

// The store's bounds and bias are a tile's: of this copy the compiler keeps what the store reads.
struct TileBounds {
  GemmLaunch launch;
  __device__ explicit TileBounds(const Fp8GemmArgs& args) {
    launch.args = args;
    launch.streams_b = false;
  }
  __device__ __forceinline__ void MoveTo(const DirectGroupedLaunch& all, const GroupTile& tile) {
    launch.args.m = tile.row_end;
    if (all.args.bias == nullptr) return;
    launch.args.bias =
        static_cast<const uint8_t*>(all.args.bias) + tile.group * all.bias_group_bytes;
  }
};

template <GemmConfig C, GemmConfig T>
__device__ __forceinline__ void ConsumeDirect(const DirectGroupedLaunch& launch,
                                              const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, int cluster,
                                              int clusters) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  TileBounds bounds(launch.args);
  RingPosition<C.stages> at;
  int index = cluster;
  {
    const int count = WideCount(launch);
    const int tiles = count * launch.wide.n_tiles;
    float result[C.result_regs()];
    DirectMath<C> math(smem, place, warp, lane, result);
    Epilogue<C> out(bounds.launch, smem, warp, lane);
    for (; index < tiles; index += clusters) {
      const GroupStop stop = StopAt(launch.wide, index, count);
      const Tile tile = WideTileOf<C>(stop, place);
      if (tile.row0 + out.group * C.row_subs() * 64 >= stop.rows.row_end) {
        Pass<C>(math, launch.k_blocks);
        continue;
      }
      math.Run(launch.k_blocks, tile);
      out.tile = tile;
      bounds.MoveTo(launch, stop.rows);
      StoreWhole<C>(bounds.launch, smem, out, result);
      __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
    }
    index -= tiles;
    at.stage = math.issue.stage;
    at.parity = math.issue.parity;
  }
  const int count = *launch.thin.list.count;
  const int tiles = count * launch.thin.n_tiles;
  const SmemLayout<T> thin{smem.base};
  const ClusterPlace<T> thin_place = ClusterPlace<T>::Here();
  const int steps = (launch.k_blocks + T.k_blocks - 1) / T.k_blocks * T.k_blocks;
  float result[T.result_regs()];
  DirectMath<T> math(thin, thin_place, warp, lane, result);
  math.issue.stage = math.release.stage = at.stage;
  math.issue.parity = math.release.parity = at.parity;
  Epilogue<T> out(bounds.launch, thin, warp, lane);
  for (; index < tiles; index += clusters) {
    const GroupStop stop = StopAt(launch.thin, index, count);
    math.Run(steps, Tile{});
    out.tile = ThinTileOf<T>(stop, place.rank);
    bounds.MoveTo(launch, stop.rows);
    StoreWhole<T>(bounds.launch, thin, out, result);
    __syncwarp();
  }
}

template <GemmConfig C, GemmConfig T>
constexpr bool CheckDirectGrouped() {
  static_assert(!C.promotes() && !C.skinny() && T.skinny() && C.mma == T.mma);
  static_assert(C.stages == T.stages && C.stage_bytes() == T.stage_bytes() &&
                    C.math_threads() == T.math_threads() && C.multicast() == T.multicast(),
                "one ring, by the same threads");
  static_assert(
      T.store_bytes() <= C.store_bytes() && SmemLayout<C>::kStore == SmemLayout<T>::kStore,
      "one staging area");
  static_assert(C.groups == 2 && C.k_groups == 1 && T.k_groups == 1 && C.k_blocks == 1 &&
                    !C.stores_tile && !C.alternates,
                "a tile is one CTA's, and its last rows may be others'");
  static_assert(C.smem_bytes() <= kMaxSmemBytes, "a block's shared memory");
  return true;
}

// `kTable`: matrices lie apart.
template <uint64_t kWide, uint64_t kThin, bool kTable>
__global__ void __launch_bounds__(Decode(kWide).threads(), 1)
    DirectGrouped(const __grid_constant__ DirectGroupedLaunch launch) {
  constexpr GemmConfig C = Decode(kWide), T = Decode(kThin);
  static_assert(CheckDirectGrouped<C, T>());
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int cluster = blockIdx.x / C.multicast(), clusters = gridDim.x / C.multicast();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;
  if constexpr (C.moves_registers()) {
    if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<C.producer_registers()>();
  }
  if (warp >= kProducerWarp) {
    if (warp > kProducerWarp) return;
    if (ptx::ElectOne()) {
      for (const CUtensorMap* map :
           {&launch.wide_a, &launch.wide_b, &launch.thin_a, &launch.thin_b}) {
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
    ptx::NamedArrive(kReadyBarrier, C.math_threads() + 32);
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    ProduceDirect<C, T, kTable>(launch, smem, place, cluster, clusters);
  } else {
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<C.math_registers()>();
    if constexpr (C.multicast() > 1) {
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
    ptx::GridDependencyWait();
    ConsumeDirect<C, T>(launch, smem, place, cluster, clusters);
    if constexpr (C.multicast() > 1) {  // peers may still arrive on this CTA's barriers
      ptx::ClusterArriveRelaxed();
      ptx::ClusterWait();
    }
  }
}

// Tables over pairs of configs: Host code's side.
template <GemmConfig C, GemmConfig T>
struct DirectGroupedMember {
  static constexpr auto* kKernel = DirectGrouped<Encode(C), Encode(T), false>;
  static constexpr auto* kOfTables = DirectGrouped<Encode(C), Encode(T), true>;

  static cudaError_t Prepare() {
    for (auto* kernel : {kKernel, kOfTables}) {
      const cudaError_t code =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C.smem_bytes());
      if (code != cudaSuccess) return code;
    }
    return cudaSuccess;
  }
  static cudaError_t Launch(const DirectGroupedLaunch& launch, int ctas, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(C.threads());
    config.dynamicSmemBytes = C.smem_bytes();
    config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = C.multicast();
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    config.attrs = attributes;
    config.numAttrs = C.multicast() > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, launch.thin.b_maps != nullptr ? kOfTables : kKernel, launch);
  }
};

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_DIRECT_GROUPED_CUH_
