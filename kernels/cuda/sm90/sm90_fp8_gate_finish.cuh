// From a tile's results to E4M3 and scales: the product rounded to BF16, act(gate) * up, the
// largest magnitude of a row's 128, and its codes in units of 16 bytes. Bit for bit what the matmul
// into BF16 and Gated leave, of gates alone too, so that nobody sees which of the two ways was
// taken.

#pragma once

#include "kernels/cuda/ops/gated_math.cuh"
#include "kernels/cuda/ops/quantize_math.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/launch/gate_launch.h"
#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"

namespace gemmd::kernels::cuda {

// The codes of two numbers of a block, the first in the lower byte.
__device__ __forceinline__ uint32_t CodesOf(float x, float y, const ScaleDivisor& d) {
  return ptx::E4m3x2FromF32(DivideLifted(x, d), DivideLifted(y, d));
}
// The same where the scale is NaN.
__device__ __forceinline__ uint32_t BadCodesOf(float x, float y) {
  return E4m3OfBadBlock(x) | E4m3OfBadBlock(y) << 8;
}

__device__ __forceinline__ uint32_t Permute(uint32_t low, uint32_t high, uint32_t selector) {
  return __byte_perm(low, high, selector);
}

// One CTA's way from results to memory. Staging has a row of 128 codes for each row of A in the
// tile, in units of 16 bytes that are put in order on their way out.
//
// Of gates that are alone a tile's halves are neighbouring blocks of the result.
template <GemmConfig C, bool kAlone = false>
struct GateFinish {
  static constexpr int kHalf = C.result_regs() / 2;  // gates, and behind them as many ups
  static constexpr int kChunks = kHalf / 4;
  static constexpr int kPitch = C.store_pitch();
  static_assert(C.gates && (C.stages_halves() || kPitch == kGateCols + 16));
  // Behind the rows, where they are WGMMA's columns: each warp's largest magnitudes, then for every
  // row its scale and what makes division by it cheap.
  static constexpr int kWarps = C.math_threads() / 32;
  static constexpr uint32_t kMaxima = C.cols * kPitch;
  static constexpr uint32_t kDivisors = kMaxima + kWarps * C.cols * 4;
  static_assert(!C.skinny() || kDivisors + C.cols * 8 <= C.store_bytes());
  // Where warpgroups have the same rows: largest magnitudes, of each warpgroup's columns.
  static constexpr uint32_t kHalfMaxima = (C.stages_halves() ? kWarps * 8 : C.rows) * kPitch;
  static_assert(!C.splits_cols || kHalfMaxima + C.groups * C.rows * 4 <= C.store_bytes());
  static constexpr int kUnits = kGateCols / 16 / (C.splits_cols ? C.groups : 1);  // of a row

  const GatedArgs& args;
  const float alpha;  // of the product
  uint32_t staging;   // this warp's rows' (tiled) or the CTA's (skinny)
  int warp;           // of the math warps
  int lane;

  __device__ GateFinish(const GatedArgs& args, float alpha, const SmemLayout<C>& smem, int warp,
                        int lane)
      : args(args), alpha(alpha), warp(warp), lane(lane) {
    staging = smem.base + SmemLayout<C>::kStore + (C.skinny() ? 0 : StagedRow() * kPitch);
  }

  // y = act(gate + bias) of half of a thread's results, which are gates alone, in columns [col0,
  // col0 + 128) of n. Columns behind n stay 0, whatever the activation.
  __device__ __forceinline__ void Activate(const GemmArgs& gemm, int half, int col0,
                                           float (&result)[C.result_regs()],
                                           float (&y)[kHalf]) const {
    static_assert(!C.splits_cols, "a warpgroup has whole rows");
    // No load depends on a branch: they would follow one another.
    const bool has = gemm.bias != nullptr;
    const float* const bias = has ? static_cast<const float*>(gemm.bias) : &kZero;
    const int n = static_cast<int>(gemm.n), last = has ? n - 1 : 0;
    const auto bias_at = [&](int col) {
      const float of_col = bias[min(col, last)];
      return col < n ? of_col : 0.0f;
    };
    float of_rows[2];  // skinny: of the warp's upper 8 columns, and of its lower 8
    if constexpr (C.skinny()) {
      const int col = col0 + warp * 16 + lane / 4;
      of_rows[0] = bias_at(col);
      of_rows[1] = bias_at(col + 8);
    }
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const int col = col0 + j * 8 + lane % 4 * 2;
      float of_cols[4];
      if constexpr (C.skinny()) {
        of_cols[0] = of_cols[1] = of_rows[0];
        of_cols[2] = of_cols[3] = of_rows[1];
      } else {
        of_cols[0] = of_cols[2] = bias_at(col);
        of_cols[1] = of_cols[3] = bias_at(col + 1);
      }
      const float* const of_half = result + half * kHalf + 4 * j;
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        Round(__fmaf_rn(of_half[i], alpha, of_cols[i]),
              __fmaf_rn(of_half[i + 1], alpha, of_cols[i + 1]), y[4 * j + i], y[4 * j + i + 1]);
      }
    }
    ActivateGates(args, y, y);
  }

  // y = act(gate) * up of a thread's results. The ups' registers are free then.
  __device__ __forceinline__ void Multiply(float (&result)[C.result_regs()],
                                           float (&y)[kHalf]) const {
    if (alpha != 1.0f) {
#pragma unroll
      for (int i = 0; i < C.result_regs(); ++i) result[i] = __fmul_rn(result[i], alpha);
    }
    float up[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; i += 2) {
      Round(result[i], result[i + 1], y[i], y[i + 1]);
      Round(result[kHalf + i], result[kHalf + i + 1], up[i], up[i + 1]);
    }
    MultiplyGated(args, y, up, y);
  }
  static __device__ __forceinline__ void Round(float x, float y, float& to_x, float& to_y) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(y), "f"(x));
    to_x = __uint_as_float(packed << 16);
    to_y = __uint_as_float(packed & 0xffff0000u);
  }

  __device__ float* ScaleAt(const Tile& tile, int row, int block) const {
    return args.scales + tile.batch * args.scales_batch + row * args.scales_row +
           block * args.scales_block;
  }

  // Tiled: the first row of this warp's 16 in the tile.
  __device__ __forceinline__ int RowOfWarp() const {
    return (C.splits_cols ? warp % 4 : warp) * 16;
  }
  // This lane's 16 bytes of a row.
  __device__ __forceinline__ int Unit() const {
    return (C.splits_cols ? warp / 4 * kUnits : 0) + lane % kUnits;
  }

  // In staging.
  __device__ __forceinline__ int StagedRow() const {
    return C.stages_halves() ? warp * 8 : RowOfWarp();
  }

  // 16 bytes of `row` to the result, if it is in front of `end`, and they in front of its end.
  __device__ __forceinline__ void StoreUnit(const Tile& tile, int row, int end, int block,
                                            uint4 codes) const {
    uint8_t* const target = static_cast<uint8_t*>(args.dst) + tile.batch * args.dst_batch +
                            row * args.dst_row + block * kGateCols + Unit() * 16;
    const bool inside = !kAlone || block * kGateCols + Unit() * 16 < args.n;
    ptx::StoreGlobal4If(row < end && inside, target,
                        make_float4(__uint_as_float(codes.x), __uint_as_float(codes.y),
                                    __uint_as_float(codes.z), __uint_as_float(codes.w)));
  }
  __device__ __forceinline__ uint4 LoadUnit(int row) const {
    const float4 v = ptx::LoadShared4(staging + row * kPitch + Unit() * 16);
    return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                      __float_as_uint(v.w));
  }

  // The larger one of a row's two maxima: of this warpgroup's columns, and of the other's.
  __device__ __forceinline__ void MaximaOfBoth(float (&amax)[2]) const {
    const uint32_t at = staging + kHalfMaxima - StagedRow() * kPitch + (RowOfWarp() + lane / 4) * 4;
    const uint32_t mine = at + warp / 4 * C.rows * 4, other = at + (1 - warp / 4) * C.rows * 4;
    Sync();  // the last tile's have been read
    if (lane % 4 == 0) {
      ptx::StoreShared(mine, amax[0]);
      ptx::StoreShared(mine + 8 * 4, amax[1]);
    }
    Sync();
    amax[0] = ptx::MaxNaN(amax[0], ptx::LoadShared(other));
    amax[1] = ptx::MaxNaN(amax[1], ptx::LoadShared(other + 8 * 4));
  }

  __device__ __forceinline__ void StoreRows(const Tile& tile, int end, int block,
                                            float (&result)[C.result_regs()]) const {
    float y[kHalf];
    Multiply(result, y);
    StoreRows(tile, end, block, y);
  }

  // Both halves of a tile of gates that are alone.
  __device__ __forceinline__ void StoreAlone(const GemmArgs& gemm, const Tile& tile, int end,
                                             int block, float (&result)[C.result_regs()]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = 2 * block + half;
      if (own * kGateCols >= args.n) return;
      float y[kHalf];
      Activate(gemm, half, own * kGateCols, result, y);
      if constexpr (C.skinny()) {
        StoreColumns(tile, end, own, y);
      } else {
        StoreRows(tile, end, own, y);
      }
    }
  }

  // Tiled. A quad of lanes has a row of the upper 8 of the warp's 16, and one of the lower 8.
  __device__ __forceinline__ void StoreRows(const Tile& tile, int end, int block,
                                            float (&y)[kHalf]) const {
    uint32_t pairs[2][kChunks];  // of the upper and of the lower row: the codes of two columns
    const int row0 = tile.row0 + RowOfWarp();
    float maxima[2] = {};
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        maxima[lower] = AddMagnitude<false>(maxima[lower], y[4 * j + 2 * lower]);
        maxima[lower] = AddMagnitude<false>(maxima[lower], y[4 * j + 2 * lower + 1]);
      }
      maxima[lower] = MaxOverLanes<4>(maxima[lower]);
    }
    if constexpr (C.splits_cols) MaximaOfBoth(maxima);
    const bool stores_scale = lane % 4 == 0 && (!C.splits_cols || warp < 4);
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const float scale = ScaleOf<false>(maxima[lower]);
      const int row = row0 + lower * 8 + lane / 4;
      if (stores_scale && row < end) *ScaleAt(tile, row, block) = scale;
      const ScaleDivisor divisor = MakeScaleDivisor(scale);
      if (divisor.lift) {
#pragma unroll
        for (int j = 0; j < kChunks; ++j) {
          y[4 * j + 2 * lower] *= kLift;
          y[4 * j + 2 * lower + 1] *= kLift;
        }
      }
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        pairs[lower][j] = CodesOf(y[4 * j + 2 * lower], y[4 * j + 2 * lower + 1], divisor);
      }
      if (!(scale < kInf)) {
#pragma unroll
        for (int j = 0; j < kChunks; ++j) {
          pairs[lower][j] = BadCodesOf(y[4 * j + 2 * lower], y[4 * j + 2 * lower + 1]);
        }
      }
    }
    // A unit of 16 bytes has two chunks, their pairs in turns.
    const auto unit = [&](int lower, int i) {
      return pairs[lower][2 * i] | pairs[lower][2 * i + 1] << 16;
    };
    const auto in_order = [](const uint4& v) {
      return make_uint4(Permute(v.x, v.y, 0x5410), Permute(v.z, v.w, 0x5410),
                        Permute(v.x, v.y, 0x7632), Permute(v.z, v.w, 0x7632));
    };
    if constexpr (C.stages_halves()) {
      constexpr int kRowsAtOnce = 32 / kUnits;
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kUnits; i += 4) {
          ptx::StMatrix4(staging + SwizzledUnit(lane % 8, i + lane / 8), unit(lower, i),
                         unit(lower, i + 1), unit(lower, i + 2), unit(lower, i + 3));
        }
        __syncwarp();
#pragma unroll
        for (int first = 0; first < 8; first += kRowsAtOnce) {
          const int row = first + lane / kUnits;
          const float4 v = ptx::LoadShared4(staging + SwizzledUnit(row, lane % kUnits));
          StoreUnit(tile, row0 + lower * 8 + row, end, block,
                    in_order(make_uint4(__float_as_uint(v.x), __float_as_uint(v.y),
                                        __float_as_uint(v.z), __float_as_uint(v.w))));
        }
      }
      return;
    }
    const uint32_t own = staging + (C.splits_cols ? warp / 4 * kUnits * 16 : 0);
    __syncwarp();  // the last tile's units have been read
#pragma unroll
    for (int i = 0; i < kChunks / 2; i += 2) {
      ptx::StMatrix4(own + lane % 16 * kPitch + i * 16 + (lane & 16), unit(0, i), unit(1, i),
                     unit(0, i + 1), unit(1, i + 1));
    }
    __syncwarp();
    constexpr int kRowsAtOnce = 32 / kUnits;
#pragma unroll
    for (int i = 0; i < 16 / kRowsAtOnce; ++i) {
      const int row = lane / kUnits + i * kRowsAtOnce;
      StoreUnit(tile, row0 + row, end, block, in_order(LoadUnit(row)));
    }
  }

  // Among all math warps.
  __device__ void Sync() const {
    __syncwarp();
    ptx::NamedBarrier(kStagingBarrier, C.math_threads());
  }

  __device__ __forceinline__ void StoreColumns(const Tile& tile, int end, int block,
                                               float (&result)[C.result_regs()]) const {
    float y[kHalf];
    Multiply(result, y);
    StoreColumns(tile, end, block, y);
  }

  // Skinny. A warp has 16 of the 128 columns of the result, for all of the tile's rows.
  __device__ __forceinline__ void StoreColumns(const Tile& tile, int end, int block,
                                               float (&y)[kHalf]) const {
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      float left = AddMagnitude<false>(AddMagnitude<false>(0.0f, y[4 * j]), y[4 * j + 2]);
      float right = AddMagnitude<false>(AddMagnitude<false>(0.0f, y[4 * j + 1]), y[4 * j + 3]);
#pragma unroll
      for (int step = 4; step < 32; step *= 2) {
        left = ptx::MaxNaN(left, __shfl_xor_sync(0xffffffffu, left, step));
        right = ptx::MaxNaN(right, __shfl_xor_sync(0xffffffffu, right, step));
      }
      if (lane / 4 == j % 8) {
        const uint32_t at = staging + kMaxima + (warp * C.cols + j * 8 + lane % 4 * 2) * 4;
        ptx::StoreShared(at, left);
        ptx::StoreShared(at + 4, right);
      }
    }
    Sync();  // every warp's maxima are there
    MakeScales(tile, end, block);
    Sync();  // the rows' scales are there
    // A unit has the codes of 8 columns in turns with those of the 8 behind them.
    const uint32_t unit = staging + lane % 16 * kPitch + warp * 16;
#pragma unroll
    for (int j = 0; j < kChunks; j += 2) {
      ptx::StMatrix2Transposed(unit + j * 8 * kPitch, CodesOfChunk(y, j), CodesOfChunk(y, j + 1));
    }
    Sync();  // the codes are there
#pragma unroll
    for (int first = 0; first < C.cols; first += kWarps * 4) {
      const int row = first + warp * 4 + lane / 8;
      if (C.cols % (kWarps * 4) != 0 && row >= C.cols) break;
      const uint4 v = LoadUnit(row);
      StoreUnit(tile, tile.col0 + row, end, block,
                make_uint4(Permute(v.x, v.y, 0x6420), Permute(v.z, v.w, 0x6420),
                           Permute(v.x, v.y, 0x7531), Permute(v.z, v.w, 0x7531)));
    }
  }

  // A thread for each row of A.
  __device__ __forceinline__ void MakeScales(const Tile& tile, int end, int block) const {
    const int row = warp * 32 + lane;
    if (row >= C.cols) return;
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      amax = ptx::MaxNaN(amax, ptx::LoadShared(staging + kMaxima + (i * C.cols + row) * 4));
    }
    const float scale = ScaleOf<false>(amax);
    if (tile.col0 + row < end) *ScaleAt(tile, tile.col0 + row, block) = scale;
    const uint32_t at = staging + kDivisors + row * 8;
    ptx::StoreShared(at, scale);
    ptx::StoreShared(at + 4, MakeScaleDivisor(scale).negative_reciprocal);
  }

  // Of chunk j: two rows of A, each with a column of the warp's upper 8 and one of its lower 8.
  __device__ __forceinline__ uint32_t CodesOfChunk(const float (&y)[kHalf], int j) const {
    const float4 v = ptx::LoadShared4(staging + kDivisors + (j * 8 + lane % 4 * 2) * 8);
    return CodesOfRow(y[4 * j], y[4 * j + 2], v.x, v.y) |
           CodesOfRow(y[4 * j + 1], y[4 * j + 3], v.z, v.w) << 16;
  }
  static __device__ __forceinline__ uint32_t CodesOfRow(float x, float y, float scale,
                                                        float negative_reciprocal) {
    const ScaleDivisor divisor = Lifted(scale, negative_reciprocal);
    const float lift = divisor.lift ? kLift : 1.0f;
    const uint32_t codes = CodesOf(x * lift, y * lift, divisor);
    return scale < kInf ? codes : BadCodesOf(x, y);
  }
};

}  // namespace gemmd::kernels::cuda
