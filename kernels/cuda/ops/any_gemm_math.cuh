// The multiplications of sm90_any_gemm: FP32 by FMA, BF16, FP16 and INT8 by mma.sync. Each thread
// owns 4 rows by 4 columns of the 64x64 tile; Row(r) and Col(c) tell which, Index(r, c) where the
// accumulator is.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/any_gemm_load.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kSide = 4;  // rows and columns of a thread

// A stage of an operand in shared memory: [kAnyTile][kPitch].
struct StagedTile {
  const unsigned char* at;
  bool along_rows;  // lines are k's, of 64 rows
};

struct MathF32 {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 4;
  static constexpr int kCtasPerSm = 2;
  static constexpr bool kConverts = false;
  static constexpr bool kTransposes = false;

  static __device__ __forceinline__ uint4 Converted(ElementType, uint4 v) { return v; }
  static __device__ __forceinline__ int Row(int r) { return threadIdx.x / 16 + 16 * r; }
  static __device__ __forceinline__ int Col(int c) { return threadIdx.x % 16 + 16 * c; }
  static constexpr __device__ int Index(int r, int c) { return r * kSide + c; }

  static __device__ __forceinline__ void Multiply(const StagedTile& a_tile,
                                                  const StagedTile& b_tile,
                                                  float (&acc)[kSide * kSide]) {
    const unsigned char *const a = a_tile.at, *const b = b_tile.at;
#pragma unroll 1
    for (int k = 0; k < kChunks; ++k) {
      float4 x[kSide];
#pragma unroll
      for (int r = 0; r < kSide; ++r) {
        x[r] = *reinterpret_cast<const float4*>(a + Row(r) * kPitch + k * 16);
      }
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        const float4 y = *reinterpret_cast<const float4*>(b + Col(c) * kPitch + k * 16);
#pragma unroll
        for (int r = 0; r < kSide; ++r) {
          float& sum = acc[Index(r, c)];
          sum = __fmaf_rn(x[r].x, y.x, sum);
          sum = __fmaf_rn(x[r].y, y.y, sum);
          sum = __fmaf_rn(x[r].z, y.z, sum);
          sum = __fmaf_rn(x[r].w, y.w, sum);
        }
      }
    }
  }
};

// Eight warps, two along m and four along n; each 32 x 16, as 2 x 2 fragments (ptx/mma.cuh).
struct MmaLayout {
  static __device__ __forceinline__ int WarpRow() { return threadIdx.x / 32 % 2 * 32; }
  static __device__ __forceinline__ int WarpCol() { return threadIdx.x / 64 * 16; }
  static __device__ __forceinline__ int Row(int r) {
    return WarpRow() + r / 2 * 16 + r % 2 * 8 + threadIdx.x % 32 / 4;
  }
  static __device__ __forceinline__ int Col(int c) {
    return WarpCol() + c / 2 * 8 + threadIdx.x % 4 * 2 + c % 2;
  }
  static constexpr __device__ int Index(int r, int c) {
    return (r / 2 * 2 + c / 2) * 4 + r % 2 * 2 + c % 2;
  }

  // Fragments of 16 lines and 32 bytes of k, or of 16 k's and 32 bytes of rows: `row` is the first
  // row, and of the matrices 1 and 2 the one `second_along_k` lies further along k, the other along
  // the rows.
  struct Fragments {
    uint32_t at;
    int step;  // from 32 bytes of k to the next
    int next;  // from 16 rows to the next
    bool transposed;

    __device__ __forceinline__ Fragments(const StagedTile& tile, int row, bool second_along_k)
        : transposed(tile.along_rows) {
      const int lane = threadIdx.x % 32;
      const int matrix = lane / 8;
      const int along_k = second_along_k ? matrix % 2 : matrix / 2;
      const int along_rows = second_along_k ? matrix / 2 : matrix % 2;
      const int line = lane % 8 + (transposed ? along_k : along_rows) * 8;
      const int unit = (transposed ? along_rows : along_k) * 16;
      at = static_cast<uint32_t>(__cvta_generic_to_shared(tile.at)) + line * kPitch + unit +
           row * (transposed ? 2 : kPitch);
      step = transposed ? 16 * kPitch : 32;
      next = transposed ? 32 : 16 * kPitch;
    }
    __device__ __forceinline__ void Load(int rows, uint32_t (&x)[4]) const {
      if (transposed) {
        ptx::LdMatrix4Transposed(at + rows * next, x);
      } else {
        ptx::LdMatrix4(at + rows * next, x);
      }
    }
  };

  template <class Acc, class Mma>
  static __device__ __forceinline__ void MultiplyBy(const StagedTile& a_tile,
                                                    const StagedTile& b_tile,
                                                    Acc (&acc)[kSide * kSide], Mma mma) {
    Fragments a(a_tile, WarpRow(), false), b(b_tile, WarpCol(), true);
#pragma unroll
    for (int k = 0; k < kStageBytes; k += 32) {
      uint32_t x[2][4], y[4];
      a.Load(0, x[0]);
      a.Load(1, x[1]);
      b.Load(0, y);
      a.at += a.step;
      b.at += b.step;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) mma(acc + (r * 2 + c) * 4, x[r], y + c * 2);
      }
    }
  }
};

struct MathF16 : MmaLayout {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 8;
  static constexpr int kCtasPerSm = 2;
  static constexpr bool kTransposes = true;
  static constexpr bool kConverts = true;  // from bytes

  static __device__ __forceinline__ uint4 Converted(ElementType type, uint4 v) {
    if (type == ElementType::kE5M2) return F16OfE5m2(v);
    return type == ElementType::kE4M3 ? F16OfE4m3(v) : v;
  }
  static __device__ __forceinline__ void Multiply(const StagedTile& a, const StagedTile& b,
                                                  float (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaF16);
  }
};

struct MathBf16 : MmaLayout {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 8;
  static constexpr int kCtasPerSm = 2;
  static constexpr bool kTransposes = true;
  static constexpr bool kConverts = false;

  static __device__ __forceinline__ uint4 Converted(ElementType, uint4 v) { return v; }
  static __device__ __forceinline__ void Multiply(const StagedTile& a, const StagedTile& b,
                                                  float (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaBf16);
  }
};

struct MathI8 : MmaLayout {
  using Accumulator = int;
  using Total = double;
  static constexpr int kChunkElements = 16;
  static constexpr int kCtasPerSm =
      1;  // FP64 totals and 64 single bytes in flight fill 128 registers
  static constexpr bool kConverts = false;
  static constexpr bool kTransposes = false;  // bytes cannot be

  static __device__ __forceinline__ uint4 Converted(ElementType, uint4 v) { return v; }
  static __device__ __forceinline__ void Multiply(const StagedTile& a, const StagedTile& b,
                                                  int (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaS8);
  }
};

}  // namespace gemmd::kernels::cuda
