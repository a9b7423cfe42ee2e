// Groups of many rows: tiles of 192 rows of A by 128 of the weights, by three warpgroups of 64
// rows. A group's rows are multiplied in units of 64, and its weights are read once for three of
// them.
//
// Tiles leave by the copy engine while the next one multiplies. Of a warpgroup's rows that are not
// all the group's the store warp writes those that are.

#pragma once

#include "kernels/cuda/sm90/grouped/sm90_fp8_grouped.cuh"

namespace gemmd::kernels::cuda {

// Where a warpgroup's boxes go, told to its store warp: two places, used by turns.
template <GemmConfig W, class Walk>
struct StoreNotes {
  static constexpr uint32_t kAt = Walk::kTable + (Walk::kBytes + 15) / 16 * 16;
  static constexpr int kBytes = W.groups * 2 * 32;

  static __device__ __forceinline__ uint32_t At(const SmemLayout<W>& smem, int group, int turn) {
    return smem.base + kAt + (group * 2 + turn) * 32;
  }
  static __device__ __forceinline__ void Put(uint32_t note, const GroupPlace& at) {
    ptx::StoreShared4(note, make_float4(__int_as_float(at.kind), __int_as_float(at.item),
                                        __int_as_float(at.row0), __int_as_float(at.row_end)));
    ptx::StoreShared(note + 16, __int_as_float(at.n0));
  }
  static __device__ __forceinline__ GroupPlace Get(uint32_t note) {
    const float4 v = ptx::LoadShared4(note);
    return {__float_as_int(v.x),
            __float_as_int(v.y),
            __float_as_int(v.z),
            __float_as_int(v.w),
            __float_as_int(ptx::LoadShared(note + 16)),
            0};
  }
};

// Rows of a warpgroup's boxes that are in front of `at.row_end`, by one warp.
template <GemmConfig W>
__device__ __forceinline__ void StoreRowsInFront(const GroupedLaunch& launch, uint32_t boxes,
                                                 const GroupPlace& at, int lane) {
  using Boxes = StoreBoxes<W>;
  const GemmArgs& args = launch.gemm.args;
  const int unit = lane % 8, row0 = lane / 8;
  uint16_t* const d = static_cast<uint16_t*>(args.d) + at.item * args.d_batch;
#pragma unroll 1
  for (int box = 0; box < Boxes::kAcross; ++box) {
    const int n = at.n0 + box * 64 + unit * 8;
#pragma unroll 4
    for (int row = row0; row < kStoreRows; row += 4) {
      const float4 v =
          ptx::LoadShared4(boxes + box * Boxes::kBytes + row * 128 + ((unit ^ row % 8) << 4));
      ptx::StoreGlobal4If(at.row0 + row < at.row_end && n < static_cast<int>(args.n),
                          d + (at.row0 + row) * args.ldd + n, v);
    }
  }
}

// Warp `group` of those behind the producer warp.
template <GemmConfig W, class Walk>
__device__ __forceinline__ void StoreRagged(const GroupedLaunch& launch, const SmemLayout<W>& smem,
                                            int group, int lane) {
  using Boxes = StoreBoxes<W>;
  using Notes = StoreNotes<W, Walk>;
  const uint32_t boxes = Boxes::Of(smem, group);
  for (int turn = 0;; turn ^= 1) {
    ptx::TensorStoreWaitRead();
    __syncwarp();
    ptx::NamedArrive(kBoxesFreeBarrier + group, Boxes::kThreads);
    ptx::NamedBarrier(kBoxesStagedBarrier + group, Boxes::kThreads);
    const GroupPlace at = Notes::Get(Notes::At(smem, group, turn));
    if (at.kind == kNoTile) break;
    if (at.row0 + kStoreRows <= at.row_end) {
      if (ptx::ElectOne()) {
#pragma unroll
        for (int box = 0; box < Boxes::kAcross; ++box) {
          ptx::TensorStore(&launch.gemm.store_map, boxes + box * Boxes::kBytes,
                           at.n0 + box * W.store_cols(), at.row0, 0, at.item);
        }
        ptx::TensorStoreCommit();
      }
    } else {
      StoreRowsInFront<W>(launch, boxes, at, lane);
    }
    __syncwarp();
  }
  ptx::TensorStoreWait();
}

// As LoadGroupStage, A's rows in units of 64.
template <GemmConfig W>
__device__ __forceinline__ void LoadRaggedStage(const GroupedLaunch& launch,
                                                const SmemLayout<W>& smem, const GroupPlace& at,
                                                const GroupB& b, int stage, int block) {
  const uint32_t full = smem.Full(stage);
  const int units = min((at.row_end - at.row0 + kUnitRows - 1) / kUnitRows, W.groups);
  const int x = launch.any_k ? block * kBlockK : 0, z = launch.any_k ? 0 : block;
  ptx::MbarrierArriveExpectTx(full,
                              (units * kUnitRows + W.block_n()) * kBlockK + W.a_scale_bytes());
  ptx::TensorLoad(b.map, full, smem.Cols(stage), x, at.n0, z, b.item, ptx::kEvictNormal);
#pragma unroll 1
  for (int row = 0; row < units * kUnitRows; row += kUnitRows) {
    ptx::TensorLoad(&launch.gemm.row_map, full, smem.Rows(stage) + row * kBlockK, x, at.row0 + row,
                    z, at.item, ptx::kEvictNormal);
  }
  ptx::TensorLoad(&launch.gemm.scale_map, full, smem.AScales(stage),
                  at.row0 / kScaleRows * kScaleRows, 0, block, at.item, ptx::kEvictLast);
}

template <GemmConfig W, bool kTable>
__device__ __forceinline__ void ProduceRaggedTile(const GroupedLaunch& launch,
                                                  const SmemLayout<W>& smem, const GroupPlace& tile,
                                                  const CUtensorMap*& known,
                                                  RingPosition<W.stages>& at, int lane) {
  const auto b_scales = ScalesOf<W, kTable>(launch, tile, lane);
  const GroupB b = MatrixOf<W, kTable>(launch, tile.group, known);
#pragma unroll 1
  for (int block = 0; block < launch.gemm.k_blocks; ++block) {
    ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
    if (ptx::ElectOne()) {
      if (block == 0) TileNote<W>::Put(smem, at.stage, tile);
      LoadRaggedStage<W>(launch, smem, tile, b, at.stage, block);
    }
    b_scales.Load(launch.gemm, smem, lane, at.stage, block);
    __syncwarp();
    at.Advance();
  }
}

template <GemmConfig W, class Walk, bool kTable>
__device__ __forceinline__ void ProduceRagged(const GroupedLaunch& launch, const Walk& walk,
                                              const SmemLayout<W>& smem, int lane) {
  const int total = walk.Total();
  RingPosition<W.stages> at;
  const CUtensorMap* known = nullptr;
  int index = static_cast<int>(blockIdx.x);
  while (index < total) {
    int next = 0;  // comes while this tile is loaded
    if (lane == 0) next = atomicAdd(&launch.tickets->next, 1) + static_cast<int>(gridDim.x);
    ProduceRaggedTile<W, kTable>(launch, smem, walk.At(index), known, at, lane);
    index = __shfl_sync(0xffffffffu, next, 0);
  }
  EndRing<W>(launch, smem, at, lane);
}

template <GemmConfig W, class Walk>
__device__ __forceinline__ void ConsumeRagged(const GroupedLaunch& launch,
                                              const SmemLayout<W>& smem) {
  using Notes = StoreNotes<W, Walk>;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  const int group = warp / 4;
  const bool tells = W.stores_tile && launch.gemm.stores_by_copy;
  RingPosition<W.stages> ring;
  int turn = 0;
  while (true) {
    ptx::MbarrierWait(smem.Full(ring.stage), ring.parity);
    GroupPlace at = TileNote<W>::Get(smem, ring.stage);
    if (at.kind == kNoTile) break;
    const bool mine = at.row0 + group * 64 < at.row_end;
    if (tells && mine && threadIdx.x % 128 == 0) {
      GroupPlace boxes = at;
      boxes.row0 += group * 64;
      Notes::Put(Notes::At(smem, group, turn % 2), boxes);
    }
    ConsumeTile<W, false>(launch, smem, at, ring, warp, lane);
    turn += mine;
  }
  if (tells) {
    if (threadIdx.x % 128 == 0) Notes::Put(Notes::At(smem, group, turn % 2), {.kind = kNoTile});
    __syncwarp();
    ptx::NamedBarrier(kBoxesFreeBarrier + group, StoreBoxes<W>::kThreads);
    ptx::NamedArrive(kBoxesStagedBarrier + group, StoreBoxes<W>::kThreads);
  }
}

template <GemmConfig W>
using RaggedWalk = GroupWalk<W, RaggedTiles<W>>;

// `kTable`: matrices lie apart.
template <uint64_t kWide, bool kTable>
__global__ void __launch_bounds__(Decode(kWide).threads(), 1)
    Fp8Ragged(const __grid_constant__ GroupedLaunch launch) {
  constexpr GemmConfig W = Decode(kWide);
  static_assert(Check<W>() && W.moves_registers() && W.multicast() == 1 && W.ragged);
  using Walk = RaggedWalk<W>;
  extern __shared__ uint8_t raw_smem[];
  const uint32_t raw = ptx::SmemAddress(raw_smem);
  const SmemLayout<W> smem{(raw + 1023) / 1024 * 1024};
  const Walk walk{launch, reinterpret_cast<int*>(raw_smem + (smem.base - raw) + Walk::kTable)};
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  constexpr int kProducerWarp = W.math_threads() / 32;
  if (warp >= kProducerWarp) {
    ptx::SetMaxRegistersDown<W.producer_registers()>();
    if (warp > kProducerWarp) {
      if constexpr (W.stores_tile) {
        ptx::GridDependencyWait();
        if (launch.gemm.stores_by_copy) {
          StoreRagged<W, Walk>(launch, smem, warp - kProducerWarp - 1, lane);
        }
      }
      return;
    }
    MakeRing<W>(launch, smem);
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, W.math_threads() + 32);
    ptx::GridDependencyWait();
    // The kernel behind this one makes itself ready meanwhile, and finds all that was in front.
    ptx::GridDependencyLaunch();
    ptx::NamedBarrier(kTableBarrier, W.math_threads() + 32);
    ProduceRagged<W, Walk, kTable>(launch, walk, smem, lane);
  } else {
    ptx::SetMaxRegistersUp<W.math_registers()>();
    ptx::GridDependencyWait();
    walk.Make(warp, lane);
    ptx::NamedArrive(kTableBarrier, W.math_threads() + 32);
    ptx::NamedBarrier(kReadyBarrier, W.math_threads() + 32);
    ConsumeRagged<W, Walk>(launch, smem);
  }
}

template <GemmConfig W>
using RaggedFamily =
    GroupedKernels<Fp8Ragged<Encode(W), false>, Fp8Ragged<Encode(W), true>,
                   1024 + StoreNotes<W, RaggedWalk<W>>::kAt + StoreNotes<W, RaggedWalk<W>>::kBytes,
                   W.threads()>;

}  // namespace gemmd::kernels::cuda
