// A matmul whose finish is a gate: a tile has 128 columns of gates and the 128 of their ups, both
// in one warpgroup's registers, and leaves as act(gate) * up in E4M3 (sm90_fp8_gate_finish.cuh).
//
// Gates and ups are B's rows, wherever they lie: a tile's side of B is loaded as boxes of each, in
// the order in which Math works through its sub-tiles. Tiled: 128 gates, then 128 ups, columns of
// the product. Skinny: for each warpgroup 64 gates, then their ups.

#pragma once

#include "kernels/cuda/sm90/sm90_fp8_gate_finish.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gate_walk.cuh"
#include "kernels/cuda/sm90/sm90_fp8_gemm.cuh"

namespace gemmd::kernels::cuda {

// A's scales begin at a row that is a multiple of it.
constexpr int kGateScaleRows = 4;

// `b_row`: of the row side in skinny tiles, of the column side in tiled ones.
template <GemmConfig C>
__device__ __forceinline__ Tile GateTileOf(const GatePlace& at, int b_row) {
  if constexpr (C.skinny()) return {b_row, at.row0, at.item};
  return {at.row0, b_row, at.item};
}

template <GemmConfig C>
__device__ __forceinline__ void LoadGateStage(const GemmLaunch& launch, const SmemLayout<C>& smem,
                                              const Tile& tile, const GateRows& b, int group,
                                              int boxes, int stage, int block) {
  static_assert(C.k_blocks == 1);
  const uint32_t full = smem.Full(stage);
  const int x = block * kBlockK;
  const int a_bytes = C.skinny() ? boxes * kGateRowsABox * kBlockK : C.row_bytes();
  const int b_bytes = C.skinny() ? C.row_bytes() : C.col_bytes();
  ptx::MbarrierArriveExpectTx(full, a_bytes + b_bytes + C.a_scale_bytes());
  if constexpr (C.skinny()) {
    constexpr int kBox = C.b_box() * kBlockK;
#pragma unroll
    for (int i = 0; i < C.groups; ++i) {
      const int n = i * C.b_box();
      const uint32_t rows = smem.Rows(stage) + 2 * i * kBox;
      ptx::TensorLoad(&launch.row_map, full, rows, x, b.gate + n, 0, group, ptx::kEvictFirst);
      ptx::TensorLoad(&launch.row_map, full, rows + kBox, x, b.up + n, 0, group, ptx::kEvictFirst);
    }
#pragma unroll 1
    for (int box = 0; box < boxes; ++box) {
      ptx::TensorLoad(&launch.col_map, full, smem.Cols(stage) + box * kGateRowsABox * kBlockK, x,
                      tile.col0 + box * kGateRowsABox, 0, tile.batch, ptx::kEvictLast);
    }
  } else {
    ptx::TensorLoad(&launch.row_map, full, smem.Rows(stage), x, tile.row0, 0, tile.batch,
                    ptx::kEvictNormal);
    ptx::TensorLoad(&launch.col_map, full, smem.Cols(stage), x, b.gate, 0, group,
                    ptx::kEvictNormal);
    ptx::TensorLoad(&launch.col_map, full, smem.Cols(stage) + kGateCols * kBlockK, x, b.up, 0,
                    group, ptx::kEvictNormal);
  }
  const int row0 = C.skinny() ? tile.col0 : tile.row0;
  ptx::TensorLoad(&launch.scale_map, full, smem.AScales(stage),
                  row0 / kGateScaleRows * kGateScaleRows, 0, block, tile.batch, ptx::kEvictLast);
}

// The ring's barriers, by one lane of the producer warp.
template <GemmConfig C>
__device__ __forceinline__ void MakeGateRing(const GemmLaunch& launch, const SmemLayout<C>& smem) {
  if (!ptx::ElectOne()) return;
  ptx::PrefetchTensorMap(&launch.row_map);
  ptx::PrefetchTensorMap(&launch.col_map);
  ptx::PrefetchTensorMap(&launch.scale_map);
#pragma unroll
  for (int stage = 0; stage < C.stages; ++stage) {
    ptx::MbarrierInit(smem.Full(stage), kFullArrivals<C>);
    ptx::MbarrierInit(smem.Empty(stage), C.math_threads() / 32 * kReleasingLanes);
  }
  ptx::FenceMbarrierInit();
}

// The row of B whose scale a lane brings: of gates, or of ups, which gates alone may lack at the
// end.
template <bool kAlone>
__device__ __forceinline__ int GateScaleRow(const GemmArgs& gemm, const GateRows& b, int lane) {
  if (lane == 0 || (kAlone && b.up >= gemm.n)) return b.gate;
  return b.up;
}

template <GemmConfig C, bool kAlone>
__device__ __forceinline__ void ProduceGate(const GateLaunch& launch, const SmemLayout<C>& smem,
                                            const GateWalk<C>& walk, int lane) {
  const GemmLaunch& gemm = launch.gemm;
  const int count = walk.Count();
  const int tiles = count * launch.n_tiles;
  RingPosition<C.stages> at;
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const GatePlace place = walk.At(index, count);
    const GateRows b = GateRowsOf(launch.period_tiles, place.block);
    const Tile tile = GateTileOf<C>(place, b.gate);
    // Of each k block one of B's scales for the gates and one for the ups, by a lane for each.
    const float* const scales =
        gemm.args.b_scales + place.matrix * gemm.args.b_scales_batch +
        GateScaleRow<kAlone>(gemm.args, b, lane) / kBlockK * gemm.args.b_scales_ld;
    const int rows = min(place.row_end - place.row0, C.block_m());
    const int boxes = (rows + kGateRowsABox - 1) / kGateRowsABox;
#pragma unroll 1
    for (int block = 0; block < gemm.k_blocks; ++block) {
      ptx::MbarrierWait(smem.Empty(at.stage), at.parity ^ 1);
      if (ptx::ElectOne()) {
        LoadGateStage<C>(gemm, smem, tile, b, place.matrix, boxes, at.stage, block);
      }
      if (lane < kBScales<C>) {
        ptx::CpAsync4(smem.BScales(at.stage) + lane * 4, scales + block);
        ptx::CpAsyncMbarrierArrive(smem.Full(at.stage));
      }
      __syncwarp();
      at.Advance();
    }
  }
}

// A warpgroup without rows lets the stages of a tile pass.
template <GemmConfig C>
__device__ __forceinline__ void PassGate(Math<C>& math, int steps) {
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    math.WaitFull();
    math.issue.Advance();
    math.Release();
  }
}

template <GemmConfig C, bool kAlone>
__device__ __forceinline__ void ConsumeGate(const GateLaunch& launch, const SmemLayout<C>& smem,
                                            const GateWalk<C>& walk, int warp, int lane) {
  const ClusterPlace<C> place = ClusterPlace<C>::Here();
  const int count = walk.Count();
  const int tiles = count * launch.n_tiles;
  const int steps = launch.gemm.k_blocks;
  float result[C.result_regs()];
  Math<C> math(smem, place, warp, lane, result);
  const uint32_t a_scales = math.a_scales;
  const GateFinish<C, kAlone> finish(launch.gated, launch.gemm.args.alpha, smem, warp, lane);
  for (int index = blockIdx.x; index < tiles; index += gridDim.x) {
    const GatePlace at = walk.At(index, count);
    const Tile tile = GateTileOf<C>(at, 0);
    if constexpr (!C.skinny()) {
      if (tile.row0 + warp / 4 * 64 >= at.row_end) {
        PassGate<C>(math, steps);
        continue;
      }
    }
    math.a_scales = a_scales + at.row0 % kGateScaleRows * 4;
    math.Run(steps, tile);
    if constexpr (kAlone) {
      finish.StoreAlone(launch.gemm.args, tile, at.row_end, at.block, result);
    } else if constexpr (C.skinny()) {
      finish.StoreColumns(tile, at.row_end, at.block, result);
    } else {
      finish.StoreRows(tile, at.row_end, at.block, result);
    }
    __syncwarp();  // WGMMA takes whole warps
  }
}

template <GemmConfig C, bool kAlone>
__device__ __forceinline__ void RunGate(const GateLaunch& launch) {
  static_assert(C.gates && C.ragged && C.multicast() == 1 && C.k_groups == 1 && C.k_blocks == 1 &&
                    C.ctas_per_sm == 1 && !C.stores_tile,
                "a tile is one CTA's, and its last rows may be others'");
  extern __shared__ uint8_t raw_smem[];
  const SmemLayout<C> smem{(ptx::SmemAddress(raw_smem) + 1023) / 1024 * 1024};
  const GateWalk<C> walk{launch};
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  constexpr int kProducerWarp = C.math_threads() / 32;
  if constexpr (C.moves_registers()) {
    if (warp >= kProducerWarp) ptx::SetMaxRegistersDown<C.producer_registers()>();
  }
  if (warp >= kProducerWarp) {
    if (warp > kProducerWarp) return;
    MakeGateRing<C>(launch.gemm, smem);
    ptx::GridDependencyLaunch();  // the kernel behind this one makes itself ready meanwhile
    __syncwarp();
    ptx::NamedArrive(kReadyBarrier, C.math_threads() + 32);
    ptx::GridDependencyWait();
    ProduceGate<C, kAlone>(launch, smem, walk, lane);
  } else {
    if constexpr (C.moves_registers()) ptx::SetMaxRegistersUp<C.math_registers()>();
    ptx::NamedBarrier(kReadyBarrier, C.math_threads() + 32);
    ptx::GridDependencyWait();
    ConsumeGate<C, kAlone>(launch, smem, walk, warp, lane);
  }
}

template <uint64_t kCode>
__global__ void __launch_bounds__(Decode(kCode).threads(), 1)
    Fp8Gate(const __grid_constant__ GateLaunch launch) {
  RunGate<Decode(kCode), false>(launch);
}

// Of gates alone, whose columns lie in turns: a tile's gates and "ups" are neighbouring blocks.
template <uint64_t kCode>
__global__ void __launch_bounds__(Decode(kCode).threads(), 1)
    Fp8GateAlone(const __grid_constant__ GateLaunch launch) {
  RunGate<Decode(kCode), true>(launch);
}

}  // namespace gemmd::kernels::cuda
