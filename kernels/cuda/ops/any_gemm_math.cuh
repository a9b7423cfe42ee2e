// The multiplications of sm90_any_gemm: FP32 by FMA, BF16, FP16 and INT8 by mma.sync. Each thread
// owns 4 rows by 4 columns of the 64x64 tile; Row(r) and Col(c) tell which, Index(r, c) where the
// accumulator is.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/any_gemm_load.cuh"
#include "kernels/cuda/ptx/mma.cuh"

namespace gemmd::kernels::cuda {

inline constexpr int kSide = 4;  // rows and columns of a thread

struct MathF32 {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 4;
  static constexpr int kCtasPerSm = 2;

  static __device__ __forceinline__ uint4 LoadChunk(ElementType type, const char* from,
                                                    int64_t step, int valid, bool vector) {
    return LoadRaw<4>(from, step, valid, vector);
  }
  static __device__ __forceinline__ int Row(int r) { return threadIdx.x / 16 + 16 * r; }
  static __device__ __forceinline__ int Col(int c) { return threadIdx.x % 16 + 16 * c; }
  static constexpr __device__ int Index(int r, int c) { return r * kSide + c; }

  static __device__ __forceinline__ void Multiply(const unsigned char* a, const unsigned char* b,
                                                  float (&acc)[kSide * kSide]) {
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

  template <class Acc, class Mma>
  static __device__ __forceinline__ void MultiplyBy(const unsigned char* a, const unsigned char* b,
                                                    Acc (&acc)[kSide * kSide], Mma mma) {
    const int lane = threadIdx.x % 32;
    // Lanes 0..7 address rows 0..7, 8..15 rows 8..15, 16..31 the same 16 bytes further along k.
    const uint32_t a_address = static_cast<uint32_t>(__cvta_generic_to_shared(a)) +
                               (WarpRow() + lane % 16) * kPitch + lane / 16 * 16;
    // Columns 0..7, then the same 16 bytes further; then columns 8..15 alike.
    const uint32_t b_address = static_cast<uint32_t>(__cvta_generic_to_shared(b)) +
                               (WarpCol() + lane / 16 * 8 + lane % 8) * kPitch + lane / 8 % 2 * 16;
#pragma unroll
    for (int k = 0; k < kStageBytes; k += 32) {
      uint32_t x[2][4], y[4];
      ptx::LdMatrix4(a_address + k, x[0]);
      ptx::LdMatrix4(a_address + 16 * kPitch + k, x[1]);
      ptx::LdMatrix4(b_address + k, y);
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

  static __device__ __forceinline__ uint4 LoadChunk(ElementType type, const char* from,
                                                    int64_t step, int valid, bool vector) {
    if (type == ElementType::kE5M2) return LoadE5m2(from, step, valid, vector);
    return type == ElementType::kE4M3 ? LoadE4m3(from, step, valid, vector)
                                      : LoadRaw<2>(from, step, valid, vector);
  }
  static __device__ __forceinline__ void Multiply(const unsigned char* a, const unsigned char* b,
                                                  float (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaF16);
  }
};

struct MathBf16 : MmaLayout {
  using Accumulator = float;
  using Total = float;
  static constexpr int kChunkElements = 8;
  static constexpr int kCtasPerSm = 2;

  static __device__ __forceinline__ uint4 LoadChunk(ElementType type, const char* from,
                                                    int64_t step, int valid, bool vector) {
    return LoadRaw<2>(from, step, valid, vector);
  }
  static __device__ __forceinline__ void Multiply(const unsigned char* a, const unsigned char* b,
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

  static __device__ __forceinline__ uint4 LoadChunk(ElementType type, const char* from,
                                                    int64_t step, int valid, bool vector) {
    return LoadRaw<1>(from, step, valid, vector);
  }
  static __device__ __forceinline__ void Multiply(const unsigned char* a, const unsigned char* b,
                                                  int (&acc)[kSide * kSide]) {
    MultiplyBy(a, b, acc, ptx::MmaS8);
  }
};

}  // namespace gemmd::kernels::cuda
