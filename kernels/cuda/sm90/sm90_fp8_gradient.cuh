// Gradients of weights in FP8: the skeleton of sm90_gradient.cuh with scales for both sides.
//
//   HBM / L2 --TMA--> ring of [rows | cols | scales of either] --WGMMA--> accumulators
//                                                                            | factors
//        D <--copy engine, stored or added-- staging, a sub-tile <--C, rounding-- result

#pragma once

#include "kernels/cuda/sm90/sm90_fp8_gradient_math.cuh"
#include "kernels/cuda/sm90/sm90_gradient.cuh"

namespace gemmd::kernels::cuda {

// One stage: this CTA's rows and columns, or its slices of what its cluster shares, and all its
// scales.
template <GemmConfig C>
__device__ __forceinline__ void LoadGradientStage(const GradientLaunch& launch,
                                                  const SmemLayout<C>& smem,
                                                  const ClusterPlace<C>& place, const Tile& tile,
                                                  const KRun& run, int stage, int step) {
  const uint32_t full = smem.Full(stage);
  const int block = run.first / kBlockK + step, batch = run.batch;
  const int x = block * kRowBytes;
  ptx::MbarrierArriveExpectTx(full, C.stage_bytes() + (C.rows + C.cols) * 4);
  constexpr int kRows = C.rows / C.share_rows;
  const int row = place.col * kRows;
  if constexpr (C.share_rows == 1) {
    ptx::TensorLoad(&launch.row_map, full, smem.Rows(stage), x, tile.row0, 0, batch,
                    ptx::kEvictNormal);
  } else {
    ptx::TensorLoadMulticast(&launch.row_map, full, smem.Rows(stage) + row * kRowBytes, x,
                             tile.row0 + row, 0, batch, place.RowPeers(), ptx::kEvictNormal);
  }
  constexpr int kCols = C.cols / C.share_cols;
  const int col = place.row * kCols;
  if constexpr (C.share_cols == 1) {
    ptx::TensorLoad(&launch.col_map, full, smem.Cols(stage), x, tile.col0, 0, batch,
                    ptx::kEvictNormal);
  } else {
    ptx::TensorLoadMulticast(&launch.col_map, full, smem.Cols(stage) + col * kRowBytes, x,
                             tile.col0 + col, 0, batch, place.ColPeers(), ptx::kEvictNormal);
  }
  ptx::TensorLoad(&launch.row_scale_map, full, smem.AScales(stage), tile.row0, 0, block, batch,
                  ptx::kEvictLast);
  ptx::TensorLoad(&launch.col_scale_map, full, smem.BScales(stage), tile.col0, 0, block, batch,
                  ptx::kEvictLast);
}

template <GemmConfig C, bool kAE5M2, bool kBE5M2>
struct Fp8GradientKind {
  static constexpr GemmConfig kConfig = C;
  static constexpr int kStep = 1;  // groups begin at blocks
  using Math = GradientMath<C, kAE5M2, kBE5M2>;

  static __device__ __forceinline__ void Prefetch(const GradientLaunch& launch) {
    ptx::PrefetchTensorMap(&launch.row_map);
    ptx::PrefetchTensorMap(&launch.col_map);
    ptx::PrefetchTensorMap(&launch.row_scale_map);
    ptx::PrefetchTensorMap(&launch.col_scale_map);
  }
  static __device__ __forceinline__ void Load(const GradientLaunch& launch,
                                              const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, const Tile& tile,
                                              const KRun& run, int stage, int step) {
    LoadGradientStage<C>(launch, smem, place, tile, run, stage, step);
  }
};

template <uint64_t kCode, bool kAE5M2, bool kBE5M2>
__global__ void __launch_bounds__(Decode(kCode).threads(), Decode(kCode).ctas_per_sm)
    Fp8Gradient(const __grid_constant__ GradientLaunch launch) {
  RunGradient<Fp8GradientKind<Decode(kCode), kAE5M2, kBE5M2>>(launch);
}

}  // namespace gemmd::kernels::cuda
