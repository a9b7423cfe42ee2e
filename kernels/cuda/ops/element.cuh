// One element of each type to and from FP32 on the device, bit for bit as kernels/cpu/ops/codec.h
// does it, NaN payloads included: rounding and saturation rules stand there and in kernels/op.h.

#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/ops/element.h"
#include "kernels/cuda/ptx/convert.cuh"

namespace gemmd::kernels::cuda {

inline constexpr uint32_t kF32Infinity = 0x7f800000u;

__device__ __forceinline__ float F16ToF32(uint32_t code) {
  // The hardware makes every NaN the same one; ours keeps sign and payload.
  const uint32_t nan = ((code & 0x7fffu) << 13) + (224u << 23) + ((code & 0x8000u) << 16);
  const float number = __half2float(__ushort_as_half(static_cast<uint16_t>(code)));
  return (code & 0x7fffu) > 0x7c00u ? __uint_as_float(nan) : number;
}

__device__ __forceinline__ float E4m3ToF32(uint32_t code) {
  const uint32_t halves = ptx::F16x2FromE4m3x2(static_cast<uint16_t>(code & 0xffu));
  const float number = __half2float(__ushort_as_half(static_cast<uint16_t>(halves)));
  const uint32_t nan = 0x7fc00000u | (code & 0x80u) << 24;
  return (code & 0x7fu) == 0x7fu ? __uint_as_float(nan) : number;
}

// `code` holds the element in its low bytes; bits above it are ignored.
__device__ __forceinline__ float ToF32(ElementType type, uint32_t code) {
  switch (type) {
    case ElementType::kF32:
      return __uint_as_float(code);
    case ElementType::kBF16:
      return __uint_as_float(code << 16);
    case ElementType::kF16:
      return F16ToF32(code);
    case ElementType::kE4M3:
      return E4m3ToF32(code);
    case ElementType::kI8:
      return static_cast<float>(static_cast<int8_t>(code));
    case ElementType::kE5M2:  // F16's upper byte
      return F16ToF32((code & 0xffu) << 8);
  }
  return 0.0f;
}

__device__ __forceinline__ uint32_t F32ToBf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return (bits & 0x7fffffffu) > kF32Infinity ? (bits >> 16) | 0x40u : rounded;
}

__device__ __forceinline__ uint32_t F32ToF16(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t nan = 0x7e00u | ((bits >> 13) & 0x3ffu) | ((bits >> 16) & 0x8000u);
  return (bits & 0x7fffffffu) > kF32Infinity ? nan : __half_as_ushort(__float2half_rn(x));
}

__device__ __forceinline__ uint32_t F32ToE4m3(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t number = ptx::E4m3x2FromF32(x, 0.0f) & 0xffu;
  return (bits & 0x7fffffffu) > kF32Infinity ? 0x7fu | ((bits >> 24) & 0x80u) : number;
}

// By integers: the hardware's conversion saturates.
__device__ __forceinline__ uint32_t F32ToE5m2(float x) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > kF32Infinity) return 0x7eu | ((bits >> 21) & 0x3u) | sign;
  if (magnitude < (113u << 23)) {  // subnormal: 128 has a last place of 2^-16
    return (__float_as_uint(__uint_as_float(magnitude) + 128.0f) - __float_as_uint(128.0f)) | sign;
  }
  const uint32_t rounded = ((magnitude + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21) - (112u << 2);
  return min(rounded, 0x7cu) | sign;
}

__device__ __forceinline__ uint32_t F32ToI8(float x) {
  // The conversion gives 0 for NaN and the ends of int32 for infinities.
  const int rounded = __float2int_rn(x);
  return static_cast<uint32_t>(min(max(rounded, -127), 127)) & 0xffu;
}

__device__ __forceinline__ uint32_t FromF32(ElementType type, float x) {
  switch (type) {
    case ElementType::kF32:
      return __float_as_uint(x);
    case ElementType::kBF16:
      return F32ToBf16(x);
    case ElementType::kF16:
      return F32ToF16(x);
    case ElementType::kE4M3:
      return F32ToE4m3(x);
    case ElementType::kI8:
      return F32ToI8(x);
    case ElementType::kE5M2:
      return F32ToE5m2(x);
  }
  return 0;
}

// Element `index` of an array of elements of `size_bytes` (1, 2 or 4).
__device__ __forceinline__ uint32_t LoadCode(const void* data, int64_t index, int size_bytes) {
  if (size_bytes == 4) return static_cast<const uint32_t*>(data)[index];
  if (size_bytes == 2) return static_cast<const uint16_t*>(data)[index];
  return static_cast<const uint8_t*>(data)[index];
}

__device__ __forceinline__ void StoreCode(void* data, int64_t index, int size_bytes,
                                          uint32_t code) {
  if (size_bytes == 4) {
    static_cast<uint32_t*>(data)[index] = code;
  } else if (size_bytes == 2) {
    static_cast<uint16_t*>(data)[index] = static_cast<uint16_t>(code);
  } else {
    static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(code);
  }
}

}  // namespace gemmd::kernels::cuda
