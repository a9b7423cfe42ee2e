// The arithmetic of Quantize, shared by its kernels: scale of a block, and division by it.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/element.cuh"
#include "kernels/cuda/ops/quantize.h"

namespace gemmd::kernels::cuda {

inline constexpr int kQuantBlock = 128;  // elements along k, and rows of a square block
inline constexpr float kInf = __builtin_inff();

// Adds one element to a block's largest magnitude. E4M3: NaN once any element is. I8: over the
// finite elements only.
template <bool kI8>
__device__ __forceinline__ float AddMagnitude(float amax, float x) {
  const float magnitude = fabsf(x);
  if constexpr (kI8) return magnitude < kInf ? fmaxf(amax, magnitude) : amax;
  return ptx::MaxNaN(amax, magnitude);
}

// The larger of both halves of two words, 16-bit floats; NaN where one is.
template <ElementType kType>
__device__ __forceinline__ uint32_t MaxNaNx2(uint32_t a, uint32_t b) {
  static_assert(kType == ElementType::kBF16 || kType == ElementType::kF16);
  uint32_t max;
  if constexpr (kType == ElementType::kBF16) {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(max) : "r"(a), "r"(b));
  }
  return max;
}

// The row of src that goes to `row` of dst, read once, since it may change meanwhile; -1: none.
__device__ __forceinline__ int64_t SourceRow(const QuantizeArgs& args, int64_t row) {
  if (args.from == nullptr) return row;
  const int32_t source = *const_cast<const volatile int32_t*>(args.from + row);
  if (source >= -1 && source < args.src_rows) return source;
  *reinterpret_cast<int4*>(args.fault) =
      make_int4(static_cast<int>(DataFaultKind::kRow), static_cast<int>(row), source,
                static_cast<int>(args.src_rows) - 1);
  return -1;
}

// The largest magnitude of a whole group of lanes; `kLanes` a power of two up to 32. Every lane of
// the warp takes part.
template <int kLanes>
__device__ __forceinline__ float MaxOverLanes(float amax) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    amax = ptx::MaxNaN(amax, __shfl_xor_sync(0xffffffffu, amax, step));
  }
  return amax;
}

// A divisor with what makes division by it cheap: x * (1/s) and one correction, three
// multiply-adds. The quotient may be a last place off the nearest, but E4M3, E5M2 and INT8 round it
// to the code of the nearest: for each mantissa of s, the x around each tie of theirs were tried.
// The remainder of a tiny s would be subnormal and lose bits, so both sides are then multiplied by
// 2^64 first.
struct ScaleDivisor {
  float scale;
  float negative_reciprocal;
  bool lift;
};

inline constexpr float kLift = 0x1p64f;

// `negative_reciprocal` is that of the scale after it was multiplied.
__device__ __forceinline__ ScaleDivisor Lifted(float scale, float negative_reciprocal) {
  const bool lift = scale < 0x1p-60f;
  return {lift ? scale * kLift : scale, negative_reciprocal, lift};
}

__device__ __forceinline__ ScaleDivisor MakeScaleDivisor(float scale) {
  ScaleDivisor divisor = Lifted(scale, 0.0f);
  divisor.negative_reciprocal = -__frcp_rn(divisor.scale);
  return divisor;
}

// x has been multiplied by kLift if the divisor says so. Finite x at most about 448 scales, where
// a quotient below 2^-11 may be inexact (it becomes 0). The order of the terms keeps -0 negative.
__device__ __forceinline__ float DivideLifted(float x, const ScaleDivisor& d) {
  const float guess = x * -d.negative_reciprocal;
  return __fmaf_rn(__fmaf_rn(guess, d.scale, -x), d.negative_reciprocal, guess);
}

__device__ __forceinline__ float Divide(float x, const ScaleDivisor& d) {
  return DivideLifted(d.lift ? x * kLift : x, d);
}

// scale = amax / max_finite, at least the smallest normal number, 1 for a block of zeros; NaN for
// E4M3 when the block has NaN or an infinity in it.
template <bool kI8>
__device__ __forceinline__ float ScaleOf(float amax) {
  constexpr float kMaxFinite = kI8 ? 127.0f : 448.0f;
  constexpr float kReciprocal = 1.0f / kMaxFinite;
  if (!(amax < kInf)) return __uint_as_float(0x7fc00000u);
  if (amax == 0.0f) return 1.0f;
  // The nearest quotient (Markstein 1990; tried for each mantissa), but of subnormal remainders.
  if (amax < 0x1p-60f) return fmaxf(__fdiv_rn(amax, kMaxFinite), 0x1p-126f);
  const float guess = __fmul_rn(amax, kReciprocal);
  return __fmaf_rn(__fmaf_rn(guess, -kMaxFinite, amax), kReciprocal, guess);
}

// An element of an E4M3 block whose scale is NaN: NaN, with its own sign only if it was NaN itself.
__device__ __forceinline__ uint32_t E4m3OfBadBlock(float x) {
  return (__float_as_uint(x) > 0xff800000u) ? 0xffu : 0x7fu;
}

// One element, by the block's divisor. `x` as loaded.
template <bool kI8>
__device__ __forceinline__ uint32_t QuantizeOne(float x, const ScaleDivisor& d) {
  if constexpr (kI8) return F32ToI8(fabsf(x) == kInf ? x : Divide(x, d));
  if (!(d.scale < kInf)) return E4m3OfBadBlock(x);
  return ptx::E4m3x2FromF32(Divide(x, d), 0.0f) & 0xffu;
}

}  // namespace gemmd::kernels::cuda
