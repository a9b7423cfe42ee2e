// The skeleton of sm90_fp8_gemm.cuh with a walk over the tiles of groups: which rows, and which
// matrix of B, is read from a list that the directory kernel made on the device.
//
// A tile begins at any row. What it loads behind its group's end are other rows or zeros: results
// of theirs stay in registers, since each row's products are its own.

#ifndef GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GROUPED_CUH_
#define GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GROUPED_CUH_

#include "kernels/cuda/matmul/grouped.h"
#include "kernels/cuda/ptx/tensor_map.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {

// Where a CTA is in the list: tile `index` of all, `list` of the list's, `n` along the weights.
struct GroupPlace {
  GroupTile rows;
  int n;
};

// Bands of the list go through the weights together, so that tiles of one group find its weights
// in L2, and tiles of one n the rows.
__device__ __forceinline__ GroupPlace PlaceAt(const GroupedLaunch& launch, int index, int count) {
  const int band = Divide(index, launch.per_band);
  const int inside = index - band * static_cast<int>(launch.per_band.value);
  const int first = band * launch.band;
  const int left = count - first;
  int n, m;
  if (left >= launch.band) {
    n = Divide(inside, launch.band_rows);
    m = inside - n * launch.band;
  } else {
    n = inside / left;
    m = inside - n * left;
  }
  const int4 tile = *reinterpret_cast<const int4*>(launch.list.tiles + first + m);
  return {{tile.x, tile.y, tile.z, tile.w}, n};
}

template <GemmConfig C>
__device__ __forceinline__ Tile TileOf(const GroupPlace& at) {
  if constexpr (C.skinny()) return {at.n * C.rows, at.rows.row0, at.rows.item};
  return {at.rows.row0, at.n * C.cols, at.rows.item};
}

// A's scales begin at a row that is a multiple of it.
constexpr int kScaleRows = 4;

// A group's matrix: by a map of all of them, or by one of its own.
struct GroupB {
  const CUtensorMap* map;
  int item;
};

// As LoadStage, with a batch of its own for each operand; `boxes` of A where it is the column side.
template <GemmConfig C>
__device__ __forceinline__ void LoadGroupStage(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                               const Tile& tile, const GroupB& b, int boxes,
                                               int stage, int block) {
  const uint64_t b_policy = C.skinny() ? ptx::kEvictFirst : ptx::kEvictNormal;
  const uint64_t a_policy = C.skinny() ? ptx::kEvictLast : ptx::kEvictNormal;
  const uint32_t full = smem.Full(stage);
  const int x = C.k_blocks == 1 ? block * kBlockK : 0;
  const int z = C.k_blocks == 1 ? 0 : block;
  const int row_bytes = C.k_blocks * C.row_bytes();
  const int col_bytes =
      C.skinny() ? C.k_blocks * boxes * kRowsABox * kBlockK : C.k_blocks * C.col_bytes();
  ptx::MbarrierArriveExpectTx(full, row_bytes + col_bytes + C.k_blocks * C.a_scale_bytes());
  ptx::TensorLoad(C.skinny() ? b.map : &launch.row_map, full, smem.Rows(stage), x, tile.row0, z,
                  C.skinny() ? b.item : tile.batch, C.skinny() ? b_policy : a_policy);
  if constexpr (C.skinny()) {
#pragma unroll
    for (int plane = 0; plane < C.k_blocks; ++plane) {
#pragma unroll 1
      for (int box = 0; box < boxes; ++box) {
        ptx::TensorLoad(&launch.col_map, full,
                        smem.Cols(stage) + plane * C.col_bytes() + box * kRowsABox * kBlockK, x,
                        tile.col0 + box * kRowsABox, z + plane, tile.batch, a_policy);
      }
    }
  } else {
    ptx::TensorLoad(b.map, full, smem.Cols(stage), x, tile.col0, z, b.item, b_policy);
  }
  const int row0 = C.skinny() ? tile.col0 : tile.row0;
  ptx::TensorLoad(&launch.scale_map, full, smem.AScales(stage), row0 / kScaleRows * kScaleRows, 0,
                  block, tile.batch, ptx::kEvictLast);
}

// The ring's barriers, by one lane of the producer warp.
template <GemmConfig C>
__device__ __forceinline__ void MakeRing(const GroupedLaunch& launch, const SmemLayout<C>& smem) {
  if (!ptx::ElectOne()) return;
  ptx::PrefetchTensorMap(&launch.gemm.row_map);
  ptx::PrefetchTensorMap(&launch.gemm.col_map);
  ptx::PrefetchTensorMap(&launch.gemm.scale_map);
#pragma unroll
  for (int stage = 0; stage < C.stages; ++stage) {
    ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
    ptx::MbarrierInit(smem.Empty(stage), C.math_threads() / 32 * kReleasingLanes);
  }
  ptx::FenceMbarrierInit();
}

// The scales' place is the group's where matrices lie apart, and the copy engine is told of a map
// that was made just now when its group comes first.
template <GemmConfig C, bool kTable>
__device__ __forceinline__ BScaleLoads<C> ScalesOf(const GroupedLaunch& launch, const Tile& tile,
                                                   int group, int lane) {
  const Tile at = {tile.row0, tile.col0, group};
  if constexpr (!kTable) return BScaleLoads<C>(launch.gemm.args, at, lane);
  Fp8GemmArgs args = launch.gemm.args;
  args.b_scales = launch.table[group].scales;
  args.b_scales_batch = 0;
  return BScaleLoads<C>(args, at, lane);
}
template <GemmConfig C, bool kTable>
__device__ __forceinline__ GroupB MatrixOf(const GroupedLaunch& launch, int group, int& known) {
  if constexpr (!kTable) return {C.skinny() ? &launch.gemm.row_map : &launch.gemm.col_map, group};
  const CUtensorMap* const map = launch.b_maps + group;
  if (group != known) ptx::AcquireTensorMap(map);
  known = group;
  return {map, 0};
}

template <GemmConfig C, bool kTable>
__device__ __forceinline__ void ProduceGroups(const GroupedLaunch& launch,
                                              const SmemLayout<C>& smem, int lane) {
  const GemmLaunch& gemm = launch.gemm;
  const int count = *launch.list.count;
  const int tiles = count * launch.n_tiles;
  const int steps = gemm.split.step;
  RingPosition<C.stages> at;
  int known = -1;  // the group whose map was acquired last
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const GroupPlace place = PlaceAt(launch, index, count);
    const Tile tile = TileOf<C>(place);
    const auto b_scales = ScalesOf<C, kTable>(launch, tile, place.rows.group, lane);
    const GroupB b = MatrixOf<C, kTable>(launch, place.rows.group, known);
    const int left = place.rows.row_end - place.rows.row0;
    const int boxes = (min(left, C.block_m()) + kRowsABox - 1) / kRowsABox;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const int block = step * C.k_blocks;
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) {
        LoadGroupStage<C>(gemm, smem, tile, b, boxes, at.stage, block);
      }
      b_scales.Load(gemm, smem, lane, at.stage, block);
      __syncwarp();
      at.Advance();
    }
  }
}

// A warpgroup without rows lets the stages of a tile pass.
template <GemmConfig C>
__device__ __forceinline__ void Pass(Math<C>& math, int steps) {
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    math.WaitFull();
    math.issue.Advance();
    math.Release();
  }
}

template <GemmConfig C>
__device__ __forceinline__ void ConsumeGroups(const GroupedLaunch& launch,
                                              const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  const int count = *launch.list.count;
  const int tiles = count * launch.n_tiles;
  const int steps = launch.gemm.split.step * C.blocks_of_group();
  float result[C.result_regs()];
  Math<C> math(smem, place, warp, lane, result);
  const uint32_t a_scales = math.a_scales;
  // The store's bounds are a tile's: of this copy the compiler keeps what the store reads.
  GemmLaunch bounded;
  bounded.args = launch.gemm.args;
  bounded.streams_b = launch.gemm.streams_b;
  Epilogue<C> out(bounded, smem, warp, lane);
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const GroupPlace at = PlaceAt(launch, index, count);
    const Tile tile = TileOf<C>(at);
    if constexpr (!C.skinny()) {
      if (tile.row0 + out.group * C.row_subs() * 64 >= at.rows.row_end) {
        Pass<C>(math, steps);
        continue;
      }
    }
    math.a_scales = a_scales + (at.rows.row0 % kScaleRows) * 4;
    math.Run(steps, tile);
    out.tile = tile;
    bounded.args.m = at.rows.row_end;
    StoreWhole<C>(bounded, smem, out, result);
    __syncwarp();  // lanes leave the store at different times, and WGMMA takes whole warps
  }
}

// `kTable`: matrices lie apart.
template <uint64_t kCode, bool kTable>
__global__ void __launch_bounds__(Decode(kCode).threads(), Decode(kCode).ctas_per_sm)
    Fp8Grouped(const __grid_constant__ GroupedLaunch launch) {
  constexpr GemmConfig C = Decode(kCode);
  static_assert(C.ragged && C.multicast() == 1 && C.k_groups == 1 && !C.stores_tile,
                "a tile is one CTA's, and its last rows may be others'");
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  constexpr int kProducerWarp = C.math_threads() / 32;
  if constexpr (C.moves_registers()) {
    if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<C.producer_registers()>();
  }
  if (warp >= kProducerWarp) {
    if (warp > kProducerWarp) return;
    MakeRing<C>(launch, smem);
    // At once: with nothing to do, as where all groups are the other list's, the kernel behind this
    // one is ready when this one has ended.
    ptx::GridDependencyLaunch();
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, C.math_threads() + 32);
    ptx::GridDependencyWait();
    ProduceGroups<C, kTable>(launch, smem, threadIdx.x % 32);
  } else {
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<C.math_registers()>();
    ptx::GridDependencyWait();
    ConsumeGroups<C>(launch, smem, place);
  }
}

}  // namespace gemmd::kernels::cuda

#endif  // GEMMD_KERNELS_CUDA_SM90_SM90_FP8_GROUPED_CUH_
