// FP32 of few rows of A: what counts is how fast B comes. It goes from memory into registers, is
// divided into parts (float_parts.h) there and multiplied as the rows of mma.sync, beside up to 32
// rows of A as its columns, a tile. The warps of a CTA share k.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/any_gemm_tile.cuh"
#include "kernels/cuda/ops/float_parts.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace gemmd::kernels::cuda {

// Of 16 k's a thread has four neighbours, of both operands: their order within the 16 does not
// matter. Likewise of 32 columns of D where B lies along them.
__device__ __forceinline__ float4 LoadQuad(const float* from, bool inside) {
  return inside ? *reinterpret_cast<const float4*>(from) : make_float4(0, 0, 0, 0);
}
// Four that are so far apart, of which so many are inside.
__device__ __forceinline__ float4 LoadOneByOne(const float* from, int64_t apart, int left) {
  const auto one = [&](int i) { return i < left ? from[i * apart] : 0.0f; };
  return make_float4(one(0), one(1), one(2), one(3));
}
// Whether quads can be read, of elements that are neighbours.
__host__ __device__ inline bool HasUnits(const AnyOperand& operand, int64_t lines_apart,
                                         int64_t elements_apart) {
  return reinterpret_cast<uintptr_t>(operand.data) % 16 == 0 && elements_apart == 1 &&
         lines_apart % 4 == 0 && operand.batch_stride % 4 == 0;
}
__device__ __forceinline__ float Element(const float4& quad, int i) {
  return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w;
}

// kGroups: of eight rows of A. kWalk: how B is read.
template <int kGroups, FewWalk kWalk>
struct FewRows {
  static constexpr bool kAlongRows = kWalk == FewWalk::kAlongRows;
  static constexpr int kWarps = kAnyThreads / 32;
  static constexpr int kAcross = 2;                 // warps, of 32 columns of D each
  static constexpr int kSlices = kWarps / kAcross;  // of each step's k
  static constexpr int kHalfK = 16, kSliceK = 2 * kHalfK, kStepK = kSlices * kSliceK;
  static constexpr int kQuads = 4;  // a thread's, of B and a half: its rows, or its k's
  static constexpr int kRows = 8 * kGroups;
  static constexpr int kSumPitch = kAnyTile + 1;

  float sums[kQuads / 2][kGroups][4] = {};  // [b's rows 16][a's rows 8], as mma.sync has them

  // Where this thread's k's begin. Of rows outside the last one stands for them.
  const float* b_from[kAlongRows ? 1 : kQuads];
  int64_t b_k_stride;
  bool inside = true;  // of B's rows, where it lies along them
  const float* a_rows[kGroups];
  int64_t a_k_stride;
  bool a_quads;  // A's k's are read as B's: else one by one, wherever they lie
  int left;      // k's from there on

  float4 b[2][kQuads], a[2][kGroups];  // the step's halves

  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int Column() {
    return static_cast<int>(threadIdx.x) / 32 % kAcross * 32;
  }
  static __device__ __forceinline__ int Slice() {
    return static_cast<int>(threadIdx.x) / 32 / kAcross;
  }
  // Of row i of this thread's four: two of each of two tiles.
  static __device__ __forceinline__ int ColumnOf(int i) {
    return Column() + (kAlongRows ? Lane() / 4 * 4 + i : i * 8 + Lane() / 4);
  }

  __device__ __forceinline__ FewRows(const AnyGemmArgs& args, const TileOrigin& tile,
                                     const KPart& part) {
    const int64_t k = part.begin + Slice() * kSliceK + Lane() % 4 * 4;
    const auto* const first_a = static_cast<const float*>(args.a.data) +
                                tile.batch * args.a.batch_stride + k * args.a.k_stride;
    a_k_stride = args.a.k_stride;
    a_quads = HasUnits(args.a, args.a.row_stride, args.a.k_stride) && args.k % 4 == 0;
    const auto* const first_b = static_cast<const float*>(args.b.data) +
                                tile.batch * args.b.batch_stride + k * args.b.k_stride;
    b_k_stride = args.b.k_stride;
    if constexpr (kAlongRows) {
      const int64_t row = tile.col + ColumnOf(0);
      inside = row < args.n;
      b_from[0] = first_b + row;
    } else {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const int64_t row = tile.col + ColumnOf(i);
        b_from[i] = first_b + min(row, args.n - 1) * args.b.row_stride;
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int64_t row = tile.row + group * 8 + Lane() / 4;
      a_rows[group] = first_a + min(row, args.m - 1) * args.a.row_stride;
    }
    left = static_cast<int>(part.end - k);
  }

  // One half of the step whose first k is `at` behind the first step's.
  __device__ __forceinline__ void LoadB(int half, int at) {
    const int k = at + half * kHalfK;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if constexpr (kAlongRows) {
        b[half][i] = LoadQuad(b_from[0] + (k + i) * b_k_stride, inside && k + i < left);
      } else if constexpr (kWalk == FewWalk::kAlongK) {
        b[half][i] = LoadQuad(b_from[i] + k, k < left);
      } else {
        b[half][i] = LoadOneByOne(b_from[i] + k * b_k_stride, b_k_stride, left - k);
      }
    }
  }
  __device__ __forceinline__ void LoadA(int half, int at) {
    const int k = at + half * kHalfK;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const float* const from = a_rows[group] + k * a_k_stride;
      a[half][group] =
          a_quads ? LoadQuad(from, k < left) : LoadOneByOne(from, a_k_stride, left - k);
    }
  }

  // What is in the registers, which take the next step's as soon as they are free.
  __device__ __forceinline__ void Multiply(int half, int next) {
    float of_a[4 * kGroups], of_b[4 * kQuads];
#pragma unroll
    for (int i = 0; i < 4 * kGroups; ++i) of_a[i] = Element(a[half][i / 4], i % 4);
#pragma unroll
    for (int i = 0; i < 4 * kQuads; ++i) {  // [row][k]
      of_b[i] = kAlongRows ? Element(b[half][i % 4], i / 4) : Element(b[half][i / 4], i % 4);
    }
    FloatPairParts y[2 * kGroups], x[2 * kQuads];
    PartsOf(of_a, y);
    LoadA(half, next);
    PartsOf(of_b, x);
    LoadB(half, next);
    float products[kQuads / 2][kGroups][4] = {};
#pragma unroll
    for (int i = 0; i < kFloatProducts; ++i) {
#pragma unroll
      for (int tile = 0; tile < kQuads / 2; ++tile) {
        // The upper row's first two k's, the lower one's, and the same of the other two.
        const int part = PartOfB(i);
        const FloatPairParts* const rows = x + tile * 4;
        const uint32_t of_rows[] = {rows[0].of[part], rows[2].of[part], rows[1].of[part],
                                    rows[3].of[part]};
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          const uint32_t of_cols[] = {y[group * 2].of[PartOfA(i)], y[group * 2 + 1].of[PartOfA(i)]};
          ptx::MmaBf16(products[tile][group], of_rows, of_cols);
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kQuads / 2; ++tile) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[tile][group][i] += products[tile][group][i];
      }
    }
  }

  __device__ __forceinline__ void Run() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      LoadA(half, 0);
      LoadB(half, 0);
    }
    // A thread's k's may be outside where its neighbours' are not.
    const int steps = (left + Lane() % 4 * 4 + kStepK - 1) / kStepK;
#pragma unroll 1
    for (int i = 1; i <= steps; ++i) {
      Multiply(0, i * kStepK);
      Multiply(1, i * kStepK);
    }
  }

  // All slices' sums, added in one order, to where StoreShare reads them.
  __device__ __forceinline__ void Leave(AnySmem& smem) const {
    static_assert(kSlices * kRows * kSumPitch * sizeof(float) <= sizeof(smem.at));
    static_assert(kSumPitch == AnySmem::kResultPitch);
    auto* const all = smem.Results<float>();
#pragma unroll
    for (int tile = 0; tile < kQuads / 2; ++tile) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int col = ColumnOf(tile * 2 + i / 2);
          const int row = group * 8 + Lane() % 4 * 2 + i % 2;
          all[(Slice() * kRows + row) * kSumPitch + col] = sums[tile][group][i];
        }
      }
    }
    __syncthreads();  // the slices are there
    constexpr int kEach = kRows * kAnyTile / kAnyThreads;
    float total[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kAnyThreads;
      const float* const from = all + i / kAnyTile * kSumPitch + i % kAnyTile;
      total[j] = from[0];
#pragma unroll
      for (int slice = 1; slice < kSlices; ++slice) total[j] += from[slice * kRows * kSumPitch];
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kAnyThreads;
      // Of the first slice each thread has read what it overwrites.
      all[i / kAnyTile * kSumPitch + i % kAnyTile] = total[j];
    }
  }
};

}  // namespace gemmd::kernels::cuda
