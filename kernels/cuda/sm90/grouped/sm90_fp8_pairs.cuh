// Groups of many rows by CTAs in pairs: two wide tiles of the same columns come with one B, of
// which each CTA loads half for both. That is a third less for L2 to give, and for its two parts to
// pass on to each other. Rows that are left are both CTAs', of columns beside one another.

#pragma once

#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_rest.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_rest_gate.cuh"
#include "kernels/cuda/sm90/grouped/sm90_fp8_turns.cuh"

namespace gemmd::kernels::cuda {

// This CTA's of two tiles; a rest's rows lie between them. What lies behind the weights' last row
// is a tile without rows.
template <GemmConfig W>
__device__ __forceinline__ GroupPlace OfPair(GroupPlace tile, int rank, int n) {
  if (tile.kind >= kPairTile) {
    tile.row0 += rank * (W.block_m() + (W.takes_rest ? tile.rest : 0));
  } else {
    tile.n0 += rank * W.block_n();
    if (tile.n0 >= n) tile.row_end = tile.row0;
  }
  return tile;
}

// ProduceTile of one of a pair's tiles, with a rest or without. Of A's rows it fetches a whole box:
// more than half of them are the group's. What does not change from block to block is made once:
// the producer is one thread, and how long it takes stands between a stage's end and its next
// loads.
template <GemmConfig W, bool kTable>
__device__ __forceinline__ void ProducePair(const GroupedLaunch& launch, const SmemLayout<W>& smem,
                                            const GroupPlace& tile, int rank,
                                            const CUtensorMap*& known, RingPosition<W.stages>& at,
                                            int lane) {
  const auto b_scales = ScalesOf<W, kTable>(launch, tile, lane);
  const GroupB b = MatrixOf<W, kTable>(launch, tile.group, known);
  const int rest_boxes = (tile.rest + kRowsABox - 1) / kRowsABox;  // one by each CTA, for both
  const uint32_t bytes =
      W.row_bytes() + W.col_bytes() + W.a_scale_bytes() + rest_boxes * kRowsABox * kRowBytes;
  const int row0 = tile.row0 - rank * tile.rest;  // with the rest's, if it is in front
  const int rest_row = tile.row0 + (rank == 0 ? W.block_m() : kRowsABox - tile.rest);
  int b_row = tile.n0 + rank * kPairBox;
  if constexpr (W.gates) {
    const GateRows rows = GateRowsOf(launch.period_tiles, tile.n0 / W.block_n());
    b_row = rank == 0 ? rows.gate : rows.up;
  }
  const int scale_row = row0 / kScaleRows * kScaleRows;
  ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
  if (ptx::ElectOne()) TileNote<W>::Put(smem, at.stage, tile);
  __syncwarp();
#pragma unroll 1
  for (int block = 0; block < launch.gemm.k_blocks; ++block) {
    const int x = launch.any_k ? block * kBlockK : 0, z = launch.any_k ? 0 : block;
    ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
    if (ptx::ElectOne()) {
      const uint32_t full = smem.Full(at.stage);
      ptx::MbarrierArriveExpectTx(full, bytes);
      ptx::TensorLoadMulticast(b.map, full, smem.Cols(at.stage) + rank * kPairBox * kBlockK, x,
                               b_row, z, b.item, 3, ptx::kEvictNormal);
      ptx::TensorLoad(&launch.gemm.row_map, full, smem.Rows(at.stage), x, tile.row0, z, tile.item,
                      ptx::kEvictNormal);
      if (rank < rest_boxes) {
        ptx::TensorLoadMulticast(&launch.a_rows_map, full,
                                 RestRing<W>::Of(smem, at.stage) + rank * kRowsABox * kRowBytes, x,
                                 rest_row, z, tile.item, 3, ptx::kEvictNormal);
      }
      ptx::TensorLoad(&launch.gemm.scale_map, full, smem.AScales(at.stage), scale_row, 0, block,
                      tile.item, ptx::kEvictLast);
    }
    b_scales.Load(launch.gemm, smem, lane, at.stage, block);
    __syncwarp();
    at.Advance();
  }
}

template <GemmConfig W, class Walk, bool kTable>
__device__ __forceinline__ void ProducePairs(const GroupedLaunch& launch, const Walk& walk,
                                             const SmemLayout<W>& smem, int rank, int lane) {
  constexpr GemmConfig H = HalfOf(W);
  RingPosition<W.stages> at;
  const CUtensorMap* known = nullptr;
  const int n = static_cast<int>(launch.gemm.args.n);
  DrawTiles<W>(launch, walk, smem, rank, lane, [&](int index) {
    const GroupPlace both = walk.At(index);
    if (both.n0 >= n) return;  // the right one of two, where there is none
    const GroupPlace tile = OfPair<W>(both, rank, n);
    if (W.takes_rest && tile.kind >= kPairTile) {
      ProducePair<W, kTable>(launch, smem, tile, rank, known, at, lane);
    } else if (tile.kind == kHalfTile) {
      ProduceTile<H, kTable>(launch, SmemLayout<H>{smem.base}, tile, known, at, lane);
    } else {
      ProduceTile<W, kTable>(launch, smem, tile, known, at, lane);
    }
  });
  AwaitGivenBack<W>(smem, at);  // by both CTAs; the math warps' note is early enough behind it
  EndRing<W>(launch, smem, at, lane);
}

// ConsumeTile of a tile with a rest, of which it is number `turn` of those of this CTA.
template <GemmConfig W>
__device__ __forceinline__ void ConsumeRest(const GroupedLaunch& launch, const SmemLayout<W>& smem,
                                            const GroupPlace& at, RingPosition<W.stages>& ring,
                                            int turn, int warp, int lane) {
  constexpr GemmConfig R = RestOf(W);
  float result[W.result_regs()], rest[R.result_regs()];
  const ClusterPlace<W> place = ClusterPlace<W>::Here();
  RestMath<W> math(smem, place, warp, lane, result, rest);
  static_cast<RingPosition<W.stages>&>(math.issue) = ring;
  const int row0 = at.row0 - place.rank * at.rest;
  const uint32_t shift = row0 % kScaleRows * 4;
  math.a_scales += shift + place.rank * at.rest * 4;
  math.rest_scales += shift + (1 - place.rank) * W.block_m() * 4;
  if (at.rest <= kRestRows / 2) {
    math.template RunAll<kRestRows / 2>(launch.gemm.k_blocks);
  } else {
    math.template RunAll<kRestRows>(launch.gemm.k_blocks);
  }
  ring = math.issue;
  // What the store makes of the lane's number is made here, else it takes registers from the loop.
  lane = __shfl_sync(0xffffffffu, lane, lane) & 31;
  GroupPlace between = at;
  between.row0 = row0 + (1 - place.rank) * W.block_m();
  between.row_end = between.row0 + at.rest;
  if constexpr (W.gates) {
    RestGate<W> gate(launch, smem, at, place.rank, turn, warp, lane);
    gate.Tell(rest);
    StoreTile<W, false>(launch, smem, at, TileOf<W>(at), warp, lane, result);
    gate.Store(between);
  } else {
    between.n0 += place.rank * R.block_n();
    StoreTile<W, false>(launch, smem, at, TileOf<W>(at), warp, lane, result);
    // The two divide the staging area in their own ways: what the other left has been read.
    ptx::NamedBarrier(kReadyBarrier, W.math_threads());
    StoreTile<R, false>(launch, SmemLayout<R>{smem.base}, between, TileOf<R>(between), warp, lane,
                        rest);
  }
  ptx::NamedBarrier(kReadyBarrier, W.math_threads());
}

template <GemmConfig W, bool kFinishes>
__device__ __forceinline__ void ConsumePairs(const GroupedLaunch& launch,
                                             const SmemLayout<W>& smem) {
  constexpr GemmConfig H = HalfOf(W);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  RingPosition<W.stages> ring;
  bool was_half = false;
  int rests = 0;
  while (true) {
    ptx::MbarrierWait(smem.Full(ring.stage), ring.parity);
    const GroupPlace at = TileNote<W>::template Get<kFinishes>(smem, ring.stage);
    if (at.kind == kNoTile) return;
    const bool half = at.kind == kHalfTile;
    if (half != was_half) ptx::NamedBarrier(kReadyBarrier, W.math_threads());  // as ConsumeGroups
    was_half = half;
    if (half) {
      ConsumeTile<H, kFinishes>(launch, SmemLayout<H>{smem.base}, at, ring, warp, lane);
    } else if (W.takes_rest && at.kind == kRestTile) {
      if constexpr (W.takes_rest) ConsumeRest<W>(launch, smem, at, ring, ++rests, warp, lane);
    } else {
      ConsumeTile<W, kFinishes>(launch, smem, at, ring, warp, lane);
    }
  }
}

// `kTable`: matrices lie apart.
template <uint64_t kWide, bool kTable, bool kFinishes>
__global__ void __launch_bounds__(Decode(kWide).threads(), 1)
    Fp8Pairs(const __grid_constant__ GroupedLaunch launch) {
  constexpr GemmConfig W = Decode(kWide);
  static_assert(Check<W>() && Check<HalfOf(W)>() && W.moves_registers() && W.multicast() == 2);
  static_assert(!kFinishes || !W.takes_rest, "a rest is rounded alone");
  using Walk = GroupWalk<W, PairedTiles<W>>;
  extern __shared__ __align__(1024)
      uint8_t pair_smem[];  // all that there is: none is left to round
  const SmemLayout<W> smem{ptx::SmemAddress(pair_smem)};
  const Walk walk{launch, reinterpret_cast<int*>(pair_smem + Walk::kTable)};
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  constexpr int kProducerWarp = W.math_threads() / 32;
  if (warp >= kProducerWarp) {
    ptx::SetMaxRegistersDown<W.producer_registers()>();
    if (warp > kProducerWarp) return;
    MakeRing<W>(launch, smem);
    TurnNotes<W, Walk>::Clear(smem, lane);
    if constexpr (W.takes_rest && W.gates) RestGate<W>::Clear(smem, lane);
    __syncwarp();
    Meet();
    ptx::GridDependencyWait();
    // The kernel behind this one makes itself ready meanwhile, and finds all that was in front.
    ptx::GridDependencyLaunch();
    ptx::NamedBarrier(kReadyBarrier, W.math_threads() + 32);  // the ring and the walk's table
    const int rank = static_cast<int>(ptx::ClusterRank());
    ProducePairs<W, Walk, kTable>(launch, walk, smem, rank, lane);
    Meet();
  } else {
    ptx::SetMaxRegistersUp<W.math_registers()>();
    ptx::GridDependencyWait();
    MakeTable<W>(walk, smem, warp, lane);
    ptx::NamedBarrier(kReadyBarrier, W.math_threads() + 32);
    ConsumePairs<W, kFinishes>(launch, smem);
    Meet();
  }
}

// What lies behind the notes, if anything does.
template <GemmConfig W, bool kRest = W.takes_rest>
struct SmemOfPairs {
  using Notes = TurnNotes<W, GroupWalk<W, PairedTiles<W>>>;
  static constexpr int kBytes = Notes::kAt + Notes::kBytes;
};
template <GemmConfig W>
struct SmemOfPairs<W, true> {
  static constexpr int kBytes = RestRing<W>::kEnd;
};

template <GemmConfig W, bool kFinishes = false>
using PairsFamily =
    GroupedKernels<Fp8Pairs<Encode(W), false, kFinishes>, Fp8Pairs<Encode(W), true, kFinishes>,
                   SmemOfPairs<W>::kBytes, W.threads(), W.multicast()>;

}  // namespace gemmd::kernels::cuda
