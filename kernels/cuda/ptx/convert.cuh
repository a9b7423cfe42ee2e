// Arithmetic on packed and unpacked floats: PTX ISA, "Data Movement and Conversion Instructions:
// cvt" and "Floating-Point Instructions: max".

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

// Two floats rounded to E4M3, ties to even, beyond +-448 and infinities to +-448. NaN becomes 0x7f
// whatever its sign.
__device__ __forceinline__ uint16_t E4m3x2FromF32(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

// Two E4M3 codes as FP16, which holds all their values. NaN stays NaN.
__device__ __forceinline__ uint32_t F16x2FromE4m3x2(uint16_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  return halves;
}

// The larger of two floats; NaN if either is (fmaxf would drop it).
__device__ __forceinline__ float MaxNaN(float x, float y) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
  return larger;
}

}  // namespace gemmd::kernels::cuda::ptx
