// Gradients of weights in BF16 and FP16: the skeleton of sm90_gradient.cuh without scales. Operands
// lie along k, or both along their rows, as the activations and gradients of a layer do.

#pragma once

#include "kernels/cuda/sm90/direct/sm90_direct_gradient_math.cuh"
#include "kernels/cuda/sm90/sm90_gradient.cuh"

namespace gemmd::kernels::cuda {

// `kRows` rows of an operand from `row` on, and a k block from column `k` on, into `target`; of
// every CTA in `peers`, if those are more than this one.
template <int kRows, bool kAlongRows, bool kShared>
__device__ __forceinline__ void LoadGradientSide(const CUtensorMap* map, uint32_t full,
                                                 uint32_t target, int row, int k, int batch,
                                                 uint16_t peers) {
  if constexpr (kAlongRows) {
    LoadAlongRows<kRows, kShared>(map, full, target, row, k, batch, peers, ptx::kEvictNormal);
  } else if constexpr (kShared) {
    ptx::TensorLoadMulticast(map, full, target, k * 2, row, 0, batch, peers, ptx::kEvictNormal);
  } else {
    ptx::TensorLoad(map, full, target, k * 2, row, 0, batch, ptx::kEvictNormal);
  }
}

template <GemmConfig C, bool kAlongRows>
struct DirectGradientKind {
  static constexpr GemmConfig kConfig = C;
  // Along k a box begins at a multiple of 16 bytes: elsewhere the copy engine faults.
  static constexpr int kStep = kAlongRows ? 1 : 16 / C.element_bytes();
  using Math = DirectGradientMath<C, kAlongRows>;

  static __device__ __forceinline__ void Prefetch(const GradientLaunch& launch) {
    ptx::PrefetchTensorMap(&launch.row_map);
    ptx::PrefetchTensorMap(&launch.col_map);
  }
  // This CTA's rows and columns, or its slices of what its cluster shares.
  static __device__ __forceinline__ void Load(const GradientLaunch& launch,
                                              const SmemLayout<C>& smem,
                                              const ClusterPlace<C>& place, const Tile& tile,
                                              const KRun& run, int stage, int step) {
    const uint32_t full = smem.Full(stage);
    const int k = run.first + step * C.block_k();
    ptx::MbarrierArriveExpectTx(full, C.stage_bytes());
    constexpr int kRows = C.rows / C.share_rows, kCols = C.cols / C.share_cols;
    const int row = place.col * kRows, col = place.row * kCols;
    LoadGradientSide<kRows, kAlongRows, (C.share_rows > 1)>(
        &launch.row_map, full, smem.Rows(stage) + row * kRowBytes, tile.row0 + row, k, run.batch,
        place.RowPeers());
    LoadGradientSide<kCols, kAlongRows, (C.share_cols > 1)>(
        &launch.col_map, full, smem.Cols(stage) + col * kRowBytes, tile.col0 + col, k, run.batch,
        place.ColPeers());
  }
};

template <uint64_t kCode, bool kAlongRows>
__global__ void __launch_bounds__(Decode(kCode).threads(), 1)
    DirectGradient(const __grid_constant__ GradientLaunch launch) {
  RunGradient<DirectGradientKind<Decode(kCode), kAlongRows>>(launch);
}

}  // namespace gemmd::kernels::cuda
