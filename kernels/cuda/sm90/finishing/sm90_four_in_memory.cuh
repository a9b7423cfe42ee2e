// C, D and a bias as finishing kernels read and write them.

#pragma once

#include <cstdint>

#include "kernels/cuda/sm90/sm90_fp8_epilogue.cuh"

namespace gemmd::kernels::cuda {

// Four neighbours of a row in memory, in one access: four words of FP32, or two of 16 bits. The
// type is the run's, since a kernel for each would be twice the code.
struct FourInMemory {
  uint4 words = {};

  __device__ __forceinline__ static FourInMemory Of(float4 v, OutType type) {
    if (type == OutType::kF32) {
      return {make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                         __float_as_uint(v.w))};
    }
    return {make_uint4(Pack2(v.x, v.y, type), Pack2(v.z, v.w, type), 0, 0)};
  }
  __device__ __forceinline__ float4 Values(OutType type) const {
    if (type == OutType::kF32) {
      return make_float4(__uint_as_float(words.x), __uint_as_float(words.y),
                         __uint_as_float(words.z), __uint_as_float(words.w));
    }
    const float2 left = Unpack2(words.x, type), right = Unpack2(words.y, type);
    return make_float4(left.x, left.y, right.x, right.y);
  }
  __device__ __forceinline__ void Load(const char* at, bool is_f32) {
    if (is_f32) {
      words = *reinterpret_cast<const uint4*>(at);
    } else {
      const uint2 two = *reinterpret_cast<const uint2*>(at);
      words = make_uint4(two.x, two.y, 0, 0);
    }
  }
  __device__ __forceinline__ void Store(char* at, bool is_f32) const {
    if (is_f32) {
      *reinterpret_cast<uint4*>(at) = words;
    } else {
      *reinterpret_cast<uint2*>(at) = make_uint2(words.x, words.y);
    }
  }
  // One of the four.
  __device__ __forceinline__ void StoreOne(char* at, int i, bool is_f32) const {
    const uint32_t of_f32 = i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
    if (is_f32) {
      *reinterpret_cast<uint32_t*>(at) = of_f32;
    } else {
      *reinterpret_cast<uint16_t*>(at) =
          static_cast<uint16_t>((i < 2 ? words.x : words.y) >> i % 2 * 16);
    }
  }
};

}  // namespace gemmd::kernels::cuda
