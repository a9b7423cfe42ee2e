// Scales of results, of a tile's rows and of its columns (INT8, and E4M3 without scales of blocks):
// they come into shared memory while the tile multiplies. A store that read them from memory would
// wait for some of them before each 64 columns, and its registers would be full of their addresses.

#pragma once

#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/global.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/sm90/gemm_family.h"
#include "kernels/cuda/sm90/sm90_fp8_tile.cuh"
#include "kernels/cuda/sm90/sm90_sum.cuh"

namespace gemmd::kernels::cuda {

// What scales are where there are none.
static __device__ const float kOne = 1.0f;

// Of the rows of one matrix.
struct Scales {
  const float* data;
  int64_t step;
  int last;

  __device__ Scales(const float* scales, int64_t ld, int64_t offset, int64_t rows)
      : data(scales != nullptr ? scales + offset : &kOne),
        step(scales != nullptr ? ld : 0),
        last(static_cast<int>(rows) - 1) {}
  // A row outside takes the last one's: its products go nowhere.
  __device__ __forceinline__ const float* At(int row) const { return data + min(row, last) * step; }
};

// Has a tile's brought into L2, by a whole warp: the producer's, which comes to its first tile half
// a microsecond before the math warps do.
template <GemmConfig C>
__device__ __forceinline__ void PrefetchResultScales(const GemmArgs& args, const Tile& tile,
                                                     int lane) {
  constexpr int kLine = 128 / sizeof(float);
  constexpr int kLinesOfRows = C.rows / kLine + 1, kLinesOfCols = (C.cols + kLine - 1) / kLine + 1;
  static_assert(kLinesOfRows + kLinesOfCols <= 32, "a lane for each");
  const bool of_rows = lane < kLinesOfRows;
  const int line = of_rows ? lane : lane - kLinesOfRows;
  const int row = (of_rows ? tile.row0 : tile.col0) + line * kLine;
  if (line >= (of_rows ? kLinesOfRows : kLinesOfCols)) return;
  const bool of_a = of_rows != C.skinny();
  const float* const scales = of_a ? args.a_scales : args.b_scales;
  if (scales == nullptr) return;
  const Scales all(scales, of_a ? args.a_scales_ld : args.b_scales_ld,
                   tile.batch * (of_a ? args.a_scales_batch : args.b_scales_batch),
                   of_a ? args.m : args.n);
  ptx::PrefetchL2(all.At(row));
}

// A math warpgroup's: those of its rows, then of all columns. There is room for two tiles', by
// turns: the next one's come while slower threads still read these.
template <GemmConfig C>
struct ResultScales {
  static constexpr int kThreads = 128;
  static constexpr int kRows = C.row_subs() * 64;
  static constexpr int kColsAt = kRows * 4;
  static constexpr int kBytes = (kRows + C.cols) * 4;

  uint32_t at;    // of the tile that multiplies
  uint32_t both;  // the two places' sum
  uint32_t cols;  // of the tile that is stored, for this lane
  float upper[C.row_subs()];
  float lower[C.row_subs()];

  __device__ ResultScales(const SmemLayout<C>& smem, int group)
      : at(smem.base + SmemLayout<C>::kResultScales + group * 2 * kBytes), both(2 * at + kBytes) {}

  // By all threads of the warpgroup, whose first row this is.
  __device__ __forceinline__ void Fetch(const GemmArgs& args, const Tile& tile, int row0,
                                        int thread) {
    const Scales a(args.a_scales, args.a_scales_ld, tile.batch * args.a_scales_batch, args.m);
    const Scales b(args.b_scales, args.b_scales_ld, tile.batch * args.b_scales_batch, args.n);
    at = both - at;
    FetchSide<kRows>(C.skinny() ? b : a, row0 + thread, at, thread);
    FetchSide<C.cols>(C.skinny() ? a : b, tile.col0 + thread, at + kColsAt, thread);
  }

  // Until they are there. `barrier`: of the warpgroup.
  __device__ __forceinline__ void Await(int barrier, int warp, int lane) {
    ptx::CpAsyncWait();
    ptx::NamedBarrier(barrier, kThreads);
    const uint32_t row = at + (warp * 16 + lane / 4) * 4;
#pragma unroll
    for (int sub = 0; sub < C.row_subs(); ++sub) {
      upper[sub] = ptx::LoadShared(row + sub * 64 * 4);
      lower[sub] = ptx::LoadShared(row + sub * 64 * 4 + 8 * 4);
    }
    cols = at + kColsAt + lane % 4 * 2 * 4;
  }

  // A chunk of a sub-tile, of sums.
  __device__ __forceinline__ float4 Apply(int sub, int chunk, float4 v) const {
    const float2 of_cols = ptx::LoadShared2(cols + chunk * 8 * 4);
    const bool first = C.row_subs() == 1 || sub == 0;
    const float up = first ? upper[0] : upper[C.row_subs() - 1];
    const float low = first ? lower[0] : lower[C.row_subs() - 1];
    return make_float4(v.x * of_cols.x * up, v.y * of_cols.y * up, v.z * of_cols.x * low,
                       v.w * of_cols.y * low);
  }

  // All sums of a thread, which become floats where they lie: what stores them then loads nothing.
  __device__ __forceinline__ void ApplyInPlace(Sum<C> (&sums)[C.result_regs()]) const {
    static_assert(C.row_subs() <= 2);
    constexpr int kChunks = C.cols / 8;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const float2 of_cols = ptx::LoadShared2(cols + chunk * 8 * 4);
#pragma unroll
      for (int sub = 0; sub < C.row_subs(); ++sub) {
        Sum<C>* const v = sums + (sub * kChunks + chunk) * 4;
        v[0] = Scaled(v[0], of_cols.x, upper[sub]);
        v[1] = Scaled(v[1], of_cols.y, upper[sub]);
        v[2] = Scaled(v[2], of_cols.x, lower[sub]);
        v[3] = Scaled(v[3], of_cols.y, lower[sub]);
      }
    }
  }

 private:
  template <int kCount>
  static __device__ __forceinline__ void FetchSide(const Scales& scales, int row, uint32_t to,
                                                   int thread) {
#pragma unroll
    for (int i = 0; i < kCount; i += kThreads) {
      if (i + kThreads > kCount && i + thread >= kCount) break;
      ptx::CpAsync4(to + (i + thread) * 4, scales.At(row + i));
    }
  }
  // The scales one after the other: of their products ptxas would keep many, and spill.
  static __device__ __forceinline__ int Scaled(int sum, float of_col, float of_row) {
    return __float_as_int(static_cast<float>(sum) * of_col * of_row);
  }
  static __device__ __forceinline__ float Scaled(float sum, float of_col, float of_row) {
    return sum * of_col * of_row;
  }
};

// Of all other types: nothing.
struct NoResultScales {
  template <class Smem>
  __device__ NoResultScales(const Smem&, int) {}
};
template <GemmConfig C, bool kScaled = C.scales_results()>
struct ResultScalesOf {
  using Type = NoResultScales;
};
template <GemmConfig C>
struct ResultScalesOf<C, true> {
  using Type = ResultScales<C>;
};

}  // namespace gemmd::kernels::cuda
