// An FP32 number's parts: x = high + mid + low, exactly where |x| is 2^-109 or more; of less, what
// is below 2^-134 is lost.
//
// Infinities and NaNs are in `low` alone, beside a `high` of 1 with their sign. So each meets a
// finite number once: infinity times infinity is infinity, times 0 it is NaN.

#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/ops/float_parts.h"
#include "kernels/cuda/ptx/convert.cuh"

namespace gemmd::kernels::cuda {

// Two neighbours' parts, the first one in the lower halves.
struct FloatPairParts {
  uint32_t of[kFloatParts];  // high, mid, low
};

__device__ __forceinline__ uint32_t RoundedPair(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ float FirstOfPair(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float SecondOfPair(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000);
}

__device__ __forceinline__ FloatPairParts RoundedParts(float x, float y) {
  FloatPairParts parts;
#pragma unroll
  for (int i = 0; i < kFloatParts; ++i) {
    parts.of[i] = RoundedPair(x, y);
    x -= FirstOfPair(parts.of[i]);
    y -= SecondOfPair(parts.of[i]);
  }
  return parts;
}

// Truncated, so that the parts of a huge number have one sign, and products that overflow are never
// infinities of both. Each in the upper half of a word.
__device__ __forceinline__ void TruncatedParts(float x, uint32_t (&parts)[kFloatParts]) {
  const uint32_t bits = __float_as_uint(x);
  constexpr uint32_t kUpper = 0xffff0000, kInfinity = 0x7f800000, kOne = 0x3f800000;
  if ((bits & kInfinity) == kInfinity) {
    parts[0] = (bits & 0x80000000) | kOne;
    parts[1] = 0;
    parts[2] = (bits & kUpper) | (x != x ? 0x00400000 : 0);  // a NaN's bits may all be lower ones
    return;
  }
  parts[0] = bits & kUpper;
  const float left = x - __uint_as_float(parts[0]);
  parts[1] = __float_as_uint(left) & kUpper;
  parts[2] = __float_as_uint(left - __uint_as_float(parts[1]));
}
__device__ __forceinline__ FloatPairParts TruncatedParts(float x, float y) {
  uint32_t first[kFloatParts], second[kFloatParts];
  TruncatedParts(x, first);
  TruncatedParts(y, second);
  FloatPairParts parts;
#pragma unroll
  for (int i = 0; i < kFloatParts; ++i) {
    parts.of[i] = first[i] >> 16 | (second[i] & 0xffff0000);
  }
  return parts;
}

// Of neighbours, pair by pair. One branch for all of them: few numbers are huge.
template <int kCount>
__device__ __forceinline__ void PartsOf(const float (&x)[kCount],
                                        FloatPairParts (&parts)[kCount / 2]) {
  constexpr float kHuge = 0x1p60f;  // products of less do not overflow
  float most = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) most = ptx::MaxNaN(most, fabsf(x[i]));
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) parts[i] = RoundedParts(x[2 * i], x[2 * i + 1]);
  if (most < kHuge) return;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) parts[i] = TruncatedParts(x[2 * i], x[2 * i + 1]);
}

}  // namespace gemmd::kernels::cuda
