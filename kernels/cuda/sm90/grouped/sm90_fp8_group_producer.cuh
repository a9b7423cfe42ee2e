// The producer warp of a grouped matmul: draws tiles, and loads their rows, weights and scales.
//
// The first tile's weights are loaded while the kernels in front still work on A.

#pragma once

#include "kernels/cuda/ptx/tensor_map.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_group_tile.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gate_walk.cuh"

namespace gemmd::kernels::cuda {

// A group's matrix: by a map of all of them, or by one of its own.
struct GroupB {
  const CUtensorMap* map;
  int item;
};

// L2's policy for the weights. Thin tiles read them alone, and evict first. So weights replace each
// other there, and what others wrote leaves between the reads, bit by bit; of many weights the
// first k blocks of each CTA are read with the normal policy, which clears L2 of it at once.
template <GemmConfig C>
struct BPolicy {
  int clearing = 0;  // k blocks that are left of those

  __device__ __forceinline__ uint64_t Get() const {
    if constexpr (!C.skinny()) return ptx::kEvictNormal;
    return clearing > 0 ? ptx::kEvictNormal : ptx::kEvictFirst;
  }
};

// Gates and ups of a block of the result's columns, in the order in which Math works through its
// sub-tiles: 128 of each, or for each warpgroup 64.
template <GemmConfig C>
__device__ __forceinline__ void LoadGateBoxes(const GroupedLaunch& launch, const GroupB& b,
                                              uint32_t full, uint32_t target, int x, int z,
                                              int block, uint64_t policy) {
  constexpr int kBox = C.b_box();
  const GateRows rows = GateRowsOf(launch.period_tiles, block);
#pragma unroll
  for (int i = 0; i < kGateCols; i += kBox) {
    ptx::TensorLoad(b.map, full, target + 2 * i * kBlockK, x, rows.gate + i, z, b.item, policy);
    ptx::TensorLoad(b.map, full, target + (2 * i + kBox) * kBlockK, x, rows.up + i, z, b.item,
                    policy);
  }
}

// B of a tile whose CTA is one of two: for both, if they have the same columns, half by each.
template <GemmConfig C>
__device__ __forceinline__ void LoadPairB(const GroupedLaunch& launch, const GroupPlace& at,
                                          const GroupB& b, uint32_t full, uint32_t target, int x,
                                          int z) {
  constexpr int kBox = kPairBox;
  const int rank = static_cast<int>(ptx::ClusterRank());
  int rows[2] = {at.n0, at.n0 + kBox};
  if constexpr (C.gates) {
    const GateRows gated = GateRowsOf(launch.period_tiles, at.n0 / C.block_n());
    rows[0] = gated.gate;
    rows[1] = gated.up;
  }
  if (!C.takes_rest && at.kind == kPairTile) {  // else ProducePair's
    ptx::TensorLoadMulticast(b.map, full, target + rank * kBox * kBlockK, x,
                             rank == 0 ? rows[0] : rows[1], z, b.item, 3, ptx::kEvictNormal);
  } else {
    ptx::TensorLoad(b.map, full, target, x, rows[0], z, b.item, ptx::kEvictNormal);
    ptx::TensorLoad(b.map, full, target + kBox * kBlockK, x, rows[1], z, b.item, ptx::kEvictNormal);
  }
}

// B's side of a stage. What comes before the barrier is told how much to expect is counted, too.
template <GemmConfig C>
__device__ __forceinline__ void LoadWeights(const GroupedLaunch& launch, const SmemLayout<C>& smem,
                                            const GroupPlace& at, const GroupB& b, int stage,
                                            int block, const BPolicy<C>& policy) {
  const uint32_t full = smem.Full(stage);
  const uint32_t target = C.skinny() ? smem.Rows(stage) : smem.Cols(stage);
  const int x = launch.any_k ? block * kBlockK : 0, z = launch.any_k ? 0 : block;
  const int step_x = launch.any_k ? kBlockK : 0, step_z = launch.any_k ? 0 : 1;
  if constexpr (C.multicast() > 1 && !(C.gates && C.splits_cols)) {
    LoadPairB<C>(launch, at, b, full, target, x, z);
  } else if constexpr (C.gates) {
    LoadGateBoxes<C>(launch, b, full, target, x, z, at.n0 / C.block_n(), policy.Get());
  } else {
#pragma unroll
    for (int plane = 0; plane < C.k_blocks; ++plane) {
      ptx::TensorLoad(b.map, full, target + plane * C.block_n() * kBlockK, x + plane * step_x,
                      at.n0, z + plane * step_z, b.item, policy.Get());
    }
  }
}

// A's side of a thin tile's stage: no more rows than there are, rounded up to kRowsABox.
template <GemmConfig C>
__device__ __forceinline__ void LoadThinRows(const GroupedLaunch& launch, const GroupPlace& at,
                                             uint32_t full, uint32_t target, int block, int rows) {
  const CUtensorMap* const map = &launch.thin_a_maps[rows / kRowsABox - 1];
  if (!launch.any_k) {
    ptx::TensorLoad(map, full, target, 0, at.row0, block, at.item, ptx::kEvictLast);
    return;
  }
#pragma unroll
  for (int plane = 0; plane < C.k_blocks; ++plane) {
    ptx::TensorLoad(map, full, target + plane * rows * kBlockK, (block + plane) * kBlockK, at.row0,
                    0, at.item, ptx::kEvictLast);
  }
}

// As LoadStage, with a batch of its own for each operand. Of A no more rows are fetched than there
// are, in boxes.
template <GemmConfig C>
__device__ __forceinline__ void LoadGroupStage(const GroupedLaunch& launch,
                                               const SmemLayout<C>& smem, const GroupPlace& at,
                                               const GroupB& b, int stage, int block,
                                               bool has_weights, const BPolicy<C>& policy) {
  constexpr int kBoxes = C.block_m() / kRowsABox;
  const uint32_t full = smem.Full(stage);
  const uint32_t a = C.skinny() ? smem.Cols(stage) : smem.Rows(stage);
  const int boxes = min((at.row_end - at.row0 + kRowsABox - 1) / kRowsABox, kBoxes);
  ptx::MbarrierArriveExpectTx(
      full, C.k_blocks * ((boxes * kRowsABox + C.block_n()) * kBlockK + C.a_scale_bytes()));
  if (!has_weights) LoadWeights<C>(launch, smem, at, b, stage, block, policy);
  if constexpr (C.thin()) {
    LoadThinRows<C>(launch, at, full, a, block, boxes * kRowsABox);
  } else {
    static_assert(C.k_blocks == 1);
    const int x = launch.any_k ? block * kBlockK : 0, z = launch.any_k ? 0 : block;
    // A whole box of 128 rows at once, where there are so many.
    int first = 0;
    if constexpr (kBoxes >= kWholeBox) {
      if (boxes >= kWholeBox) {
        ptx::TensorLoad(&launch.gemm.row_map, full, a, x, at.row0, z, at.item, ptx::kEvictNormal);
        first = kWholeBox;
      }
    }
#pragma unroll 1
    for (int box = first; box < boxes; ++box) {
      ptx::TensorLoad(&launch.a_rows_map, full, a + box * kRowsABox * kBlockK, x,
                      at.row0 + box * kRowsABox, z, at.item, ptx::kEvictNormal);
    }
  }
  ptx::TensorLoad(C.skinny() ? &launch.thin_scale_map : &launch.gemm.scale_map, full,
                  smem.AScales(stage), at.row0 / kScaleRows * kScaleRows, 0, block, at.item,
                  ptx::kEvictLast);
}

// The ring's barriers, by one lane of the producer warp.
template <GemmConfig C>
__device__ __forceinline__ void MakeRing(const GroupedLaunch& launch, const SmemLayout<C>& smem) {
  if (!ptx::ElectOne()) return;
  ptx::PrefetchTensorMap(&launch.thin_b_map);
  ptx::PrefetchTensorMap(&launch.a_rows_map);
  ptx::PrefetchTensorMap(&launch.thin_scale_map);
#pragma unroll
  for (int stage = 0; stage < C.stages; ++stage) {
    ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
    ptx::MbarrierInit(smem.Empty(stage),
                      C.math_threads() / 32 * kReleasingLanes * ClusterPlace<C>::kWriters);
  }
  ptx::FenceMbarrierInit();
}

// The scales' place is the group's where matrices lie apart, and the copy engine is told of a map
// that was made just now when its group comes first.
template <GemmConfig C, bool kTable>
__device__ __forceinline__ BScaleLoads<C> ScalesOf(const GroupedLaunch& launch,
                                                   const GroupPlace& place, int lane) {
  Tile at = TileOf<C>(place);
  at.batch = place.group;
  GemmArgs args = launch.gemm.args;
  if constexpr (kTable) {
    args.b_scales = launch.table[place.group].scales;
    args.b_scales_batch = 0;
  }
  if constexpr (C.gates) {  // a lane for the gates', one for the ups'
    const GateRows rows = GateRowsOf(launch.period_tiles, place.n0 / C.block_n());
    (C.skinny() ? at.row0 : at.col0) = lane == 0 ? rows.gate : rows.up;
    return BScaleLoads<C>(args, at, 0);
  }
  return BScaleLoads<C>(args, at, lane);
}
template <GemmConfig C, bool kTable>
__device__ __forceinline__ GroupB MatrixOf(const GroupedLaunch& launch, int group,
                                           const CUtensorMap*& known) {
  constexpr bool kThinBoxes = kBoxesOf<C> == kThinTile;
  if constexpr (!kTable) return {kThinBoxes ? &launch.thin_b_map : &launch.gemm.col_map, group};
  const CUtensorMap* const map = launch.b_maps[kBoxesOf<C>] + group;
  if (map != known) ptx::AcquireTensorMap(map);
  known = map;
  return {map, 0};
}

// `ahead`: of so many stages the weights are on their way. Behind the tile `policy` is the next
// one's.
template <GemmConfig C, bool kTable>
__device__ __forceinline__ void ProduceTile(const GroupedLaunch& launch, const SmemLayout<C>& smem,
                                            const GroupPlace& place, const CUtensorMap*& known,
                                            RingPosition<C.stages>& at, int lane,
                                            BPolicy<C>& policy, int ahead = 0) {
  const auto b_scales = ScalesOf<C, kTable>(launch, place, lane);
  const GroupB b = MatrixOf<C, kTable>(launch, place.group, known);
#pragma unroll 1
  for (int block = 0; block < launch.gemm.k_blocks; block += C.k_blocks) {
    ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
    if (ptx::ElectOne()) {
      if (block == 0) TileNote<C>::Put(smem, at.stage, place);
      LoadGroupStage<C>(launch, smem, place, b, at.stage, block, ahead > 0, policy);
    }
    if constexpr (C.skinny()) policy.clearing -= C.k_blocks;
    if (ahead <= 0) b_scales.Load(launch.gemm, smem, lane, at.stage, block);
    --ahead;
    __syncwarp();
    at.Advance();
  }
}
template <GemmConfig C, bool kTable>
__device__ __forceinline__ void ProduceTile(const GroupedLaunch& launch, const SmemLayout<C>& smem,
                                            const GroupPlace& place, const CUtensorMap*& known,
                                            RingPosition<C.stages>& at, int lane) {
  static_assert(!C.skinny());
  BPolicy<C> policy;
  ProduceTile<C, kTable>(launch, smem, place, known, at, lane, policy);
}

// Tells the math warps that there is no tile left, and hands the counter over to the next kernel.
template <GemmConfig W>
__device__ __forceinline__ void EndRing(const GroupedLaunch& launch, const SmemLayout<W>& smem,
                                        const RingPosition<W.stages>& at, int lane) {
  ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
  if (lane == 0) {
    TileNote<W>::Put(smem, at.stage, {.kind = kNoTile});
    for (int i = 0; i < kFullArrivals<W>; ++i) ptx::MbarrierArrive(smem.Full(at.stage));
    // Nobody draws behind the last CTA.
    if (atomicAdd(&launch.tickets->done, 1) == static_cast<int>(gridDim.x) - 1) {
      launch.tickets->next = launch.tickets->done = 0;
    }
  }
}

// The weights of this CTA's first tile, as far as the ring goes and if it is a thin one, while the
// kernels in front still work on A. How many stages that were.
template <GemmConfig W, GemmConfig T>
__device__ __forceinline__ int LoadFirstWeights(const GroupedLaunch& launch,
                                                const GroupWalk<W, MixedTiles<W, T>>& walk,
                                                const SmemLayout<W>& smem, int lane) {
  const int index = static_cast<int>(blockIdx.x);
  if (index >= walk.Total()) return 0;
  const GroupPlace place = walk.At(index);
  if (place.kind != kThinTile || place.n0 >= static_cast<int>(launch.gemm.args.n)) return 0;
  const SmemLayout<T> thin{smem.base};
  const CUtensorMap* known = nullptr;
  const auto b_scales = ScalesOf<T, false>(launch, place, lane);
  const GroupB b = MatrixOf<T, false>(launch, place.group, known);
  const int stages = min((launch.gemm.k_blocks + T.k_blocks - 1) / T.k_blocks, int{T.stages});
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    const int block = stage * T.k_blocks;
    if (ptx::ElectOne()) {
      LoadWeights<T>(launch, thin, place, b, stage, block, {launch.clearing_blocks - block});
    }
    b_scales.Load(launch.gemm, thin, lane, stage, block);
    __syncwarp();
  }
  return stages;
}

template <GemmConfig W, GemmConfig T, bool kTable>
__device__ __forceinline__ void ProduceGroups(const GroupedLaunch& launch,
                                              const GroupWalk<W, MixedTiles<W, T>>& walk,
                                              const SmemLayout<W>& smem, int lane, int ahead) {
  const int total = walk.Total();
  RingPosition<W.stages> at;
  const CUtensorMap* known = nullptr;  // the map that was acquired last
  BPolicy<T> policy{launch.clearing_blocks};
  int index = static_cast<int>(blockIdx.x);
  while (index < total) {
    int next = 0;  // comes while this tile is loaded
    if (lane == 0) next = atomicAdd(&launch.tickets->next, 1) + static_cast<int>(gridDim.x);
    const GroupPlace place = walk.At(index);
    if (place.kind == kWideTile) {
      ProduceTile<W, kTable>(launch, smem, place, known, at, lane);
    } else if (place.n0 >= static_cast<int>(launch.gemm.args.n)) {
      // All of it is outside.
    } else if (place.kind == kThinTile) {
      ProduceTile<T, kTable>(launch, SmemLayout<T>{smem.base}, place, known, at, lane, policy,
                             ahead);
      ahead = 0;
    } else {
      constexpr GemmConfig H = HalfOf(W);
      ProduceTile<H, kTable>(launch, SmemLayout<H>{smem.base}, place, known, at, lane);
    }
    index = __shfl_sync(0xffffffffu, next, 0);
  }
  EndRing<W>(launch, smem, at, lane);
}

}  // namespace gemmd::kernels::cuda
