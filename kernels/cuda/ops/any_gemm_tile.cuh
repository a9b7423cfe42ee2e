// One tile of sm90_any_gemm: its products, and what becomes of them.

#pragma once

#include "kernels/cuda/ops/activation.cuh"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/ops/any_gemm_math.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kScaleK = 128;  // k's, and rows of a square block, that share a scale

struct TileOrigin {
  int64_t batch, row, col;
};

// The factor of one row (or column) in one block of k; 1 without scales and outside the matrix.
__device__ __forceinline__ float Factor(const ScaleView& scales, const OperandView& operand,
                                        int64_t batch, int64_t row, int64_t k_block) {
  if (scales.data == nullptr || row >= operand.rows) return 1.0f;
  return scales.data[batch * scales.batch_stride +
                     (scales.row_blocks ? row / kScaleK : row) * scales.row_stride +
                     k_block * scales.k_stride];
}

// totals = A . B^T of this thread's part of a tile. A fresh accumulator for each 128 k's, so that
// scales can differ between them and FP32 sums of long k keep their precision.
template <class Math>
__device__ __forceinline__ void MultiplyTile(const AnyGemmArgs& args, const TileOrigin& tile,
                                             unsigned char* a_tile, unsigned char* b_tile,
                                             typename Math::Total (&totals)[kSide * kSide]) {
  constexpr int kStageK = kChunks * Math::kChunkElements;
  static_assert(kScaleK % kStageK == 0, "a stage must not straddle two scale blocks");
  const OperandView a = ViewOf(args.a, args.type, tile.batch, args.m, args.k, Math::kChunkElements);
  const OperandView b =
      ViewOf(args.b, args.b_type, tile.batch, args.n, args.k, Math::kChunkElements);
  typename Math::Accumulator acc[kSide * kSide] = {};
  StageLoader<Math> a_stage, b_stage;
  a_stage.Fetch(a, tile.row, 0);
  b_stage.Fetch(b, tile.col, 0);
  for (int64_t k0 = 0; k0 < args.k; k0 += kStageK) {
    __syncthreads();  // all warps are done with the previous stage
    a_stage.Store(a, a_tile);
    b_stage.Store(b, b_tile);
    __syncthreads();  // the stage is whole
    if (k0 + kStageK < args.k) {
      a_stage.Fetch(a, tile.row, k0 + kStageK);
      b_stage.Fetch(b, tile.col, k0 + kStageK);
    }
    Math::Multiply(a_tile, b_tile, acc);
    if ((k0 + kStageK) % kScaleK != 0 && k0 + kStageK < args.k) continue;
    const int64_t k_block = k0 / kScaleK;
    const int64_t row0 = tile.row + Opaque(0);
    const int64_t col0 = tile.col + Opaque(0);
    float a_factors[kSide], b_factors[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      a_factors[i] = Factor(args.a.scales, a, tile.batch, row0 + Math::Row(i), k_block);
      b_factors[i] = Factor(args.b.scales, b, tile.batch, col0 + Math::Col(i), k_block);
    }
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        const int i = Math::Index(r, c);
        // From the left: the product of two huge factors would be infinite, and NaN times a 0.
        totals[i] += static_cast<typename Math::Total>(acc[i]) * a_factors[r] * b_factors[c];
        acc[i] = 0;
      }
    }
  }
}

__device__ __forceinline__ float LoadAs(const void* data, ElementType type, int64_t at) {
  return ToF32(type, LoadCode(data, at, ElementBytes(type)));
}

// alpha, C, bias, activation, rounding, in the totals' type.
template <class Math>
__device__ __forceinline__ void StoreTile(const AnyGemmArgs& args, const TileOrigin& tile,
                                          bool multiplied,
                                          const typename Math::Total (&totals)[kSide * kSide]) {
  using Total = typename Math::Total;
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
    const int64_t row = tile.row + Math::Row(r);
    if (row >= args.m) continue;
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      const int64_t col = tile.col + Math::Col(c);
      if (col >= args.n) continue;
      Total value = 0;
      if (multiplied) value = static_cast<Total>(args.alpha) * totals[Math::Index(r, c)];
      if (args.beta != 0.0f) {
        const int64_t at =
            tile.batch * args.c.batch_stride + row * args.c.row_stride + col * args.c.col_stride;
        value += static_cast<Total>(args.beta) * LoadAs(args.c.data, args.out, at);
      }
      if (args.bias != nullptr) {
        value += LoadAs(args.bias, args.bias_type, col * args.bias_stride);
      }
      if (args.activation == ActivationType::kRelu) {
        if (value < 0) value = 0;  // not of NaN, which is not below 0
      } else if (args.activation != ActivationType::kNone) {
        value = Activate(args.activation, static_cast<float>(value));
      }
      const int64_t at =
          tile.batch * args.d.batch_stride + row * args.d.row_stride + col * args.d.col_stride;
      StoreCode(args.d.data, at, ElementBytes(args.out),
                FromF32(args.out, static_cast<float>(value)));
    }
  }
}

}  // namespace gemmd::kernels::cuda
