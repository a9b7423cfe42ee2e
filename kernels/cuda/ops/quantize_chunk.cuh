// A chunk: the elements of one 16-byte load, and their codes.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/quantize_math.cuh"

namespace gemmd::kernels::cuda {

template <ElementType kType>
struct Chunk {
  static constexpr int kElements = 16 / ElementBytes(kType);
  static constexpr int kCodeWords = kElements / 4;

  uint4 raw;

  __device__ __forceinline__ uint32_t Word(int i) const {
    return i == 0 ? raw.x : i == 1 ? raw.y : i == 2 ? raw.z : raw.w;
  }

  static constexpr bool kNarrow = kType != ElementType::kF32;

  // Finite numbers and infinities exactly; a NaN as some NaN.
  __device__ __forceinline__ void Expand(float (&x)[kElements]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = Word(i);
      if constexpr (kType == ElementType::kF32) {
        x[i] = __uint_as_float(word);
      } else if constexpr (kType == ElementType::kBF16) {
        x[2 * i] = __uint_as_float(word << 16);
        x[2 * i + 1] = __uint_as_float(word & 0xffff0000u);
      } else {
        x[2 * i] = __half2float(__ushort_as_half(static_cast<uint16_t>(word)));
        x[2 * i + 1] = __half2float(__ushort_as_half(static_cast<uint16_t>(word >> 16)));
      }
    }
  }

  // Element i with a NaN's own sign.
  __device__ __forceinline__ float Exact(int i) const {
    if constexpr (kType == ElementType::kF32) return __uint_as_float(Word(i));
    return ToF32(kType, Word(i / 2) >> (i % 2 * 16));
  }

  // Largest magnitudes of two elements at a time, as they are stored: of those of even and of odd
  // index. NaN where one is.
  __device__ __forceinline__ uint32_t AddPairsTo(uint32_t largest) const {
    static_assert(kNarrow);
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = MaxNaNx2<kType>(largest, Word(i) & 0x7fff7fffu);
    return largest;
  }

  template <bool kI8>
  __device__ __forceinline__ float AddTo(float amax) const {
    float x[kElements];
    Expand(x);
#pragma unroll
    for (int i = 0; i < kElements; ++i) amax = AddMagnitude<kI8>(amax, x[i]);
    return amax;
  }

  // The codes, four to a word. `finite`: all elements are, which INT8 needs no look at then.
  template <bool kI8>
  __device__ __forceinline__ void Encode(const ScaleDivisor& d, uint32_t (&codes)[kCodeWords],
                                         bool finite = false) const {
    float x[kElements];
    Expand(x);
    if (d.lift) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) x[i] *= kLift;
    }
#pragma unroll
    for (int i = 0; i < kCodeWords; ++i) {
      const float* part = x + 4 * i;
      if constexpr (kI8) {
        if (finite) {
          codes[i] = I8x4(part, d);
          continue;
        }
        codes[i] = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float quotient = fabsf(part[j]) == kInf ? part[j] : DivideLifted(part[j], d);
          codes[i] |= F32ToI8(quotient) << (8 * j);
        }
      } else {
        float quotient[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          quotient[j] = DivideLifted(part[j], d);
        }
        codes[i] = ptx::E4m3x2FromF32(quotient[0], quotient[1]) |
                   ptx::E4m3x2FromF32(quotient[2], quotient[3]) << 16;
      }
    }
    if constexpr (!kI8) {
      if (!(d.scale < kInf)) {
#pragma unroll
        for (int i = 0; i < kElements; ++i) {
          const uint32_t code = E4m3OfBadBlock(Exact(i));
          codes[i / 4] = i % 4 == 0 ? code : codes[i / 4] | code << (i % 4 * 8);
        }
      }
    }
  }

 private:
  // Four finite elements, lifted as the divisor says. Of what was added to 1.5 * 2^23 the low byte
  // is the nearest integer.
  static __device__ __forceinline__ uint32_t I8x4(const float* x, const ScaleDivisor& d) {
    uint32_t bits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float quotient = DivideLifted(x[j], d);
      bits[j] = __float_as_uint(__fadd_rn(quotient, 0x1.8p23f));
    }
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040),
                       0x5410);
  }
};

// The largest magnitude of a lane's chunks; NaN where one is.
template <ElementType kType, int kLoads>
__device__ __forceinline__ float LargestOfAll(const Chunk<kType> (&chunks)[kLoads]) {
  if constexpr (Chunk<kType>::kNarrow) {
    uint32_t pairs = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) pairs = chunks[i].AddPairsTo(pairs);
    return ptx::MaxNaN(ToF32(kType, pairs & 0xffffu), ToF32(kType, pairs >> 16));
  } else {
    float amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) amax = chunks[i].template AddTo<false>(amax);
    return amax;
  }
}
// The same over the finite ones alone.
template <ElementType kType, int kLoads>
__device__ __forceinline__ float LargestFinite(const Chunk<kType> (&chunks)[kLoads]) {
  float amax = 0.0f;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) amax = chunks[i].template AddTo<true>(amax);
  return amax;
}

// Streamed: nothing of src is read twice.
template <ElementType kType>
__device__ __forceinline__ Chunk<kType> LoadChunk(const void* data, int64_t element, bool valid) {
  const char* address = static_cast<const char*>(data) + element * ElementBytes(kType);
  return {valid ? __ldcs(reinterpret_cast<const uint4*>(address)) : make_uint4(0, 0, 0, 0)};
}

__device__ __forceinline__ void StoreCodes(uint8_t* target, const uint32_t (&codes)[1]) {
  *reinterpret_cast<uint32_t*>(target) = codes[0];
}
__device__ __forceinline__ void StoreCodes(uint8_t* target, const uint32_t (&codes)[2]) {
  *reinterpret_cast<uint2*>(target) = make_uint2(codes[0], codes[1]);
}

}  // namespace gemmd::kernels::cuda
