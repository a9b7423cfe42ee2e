// A chunk: the elements of one 16-byte load, and their codes.

#ifndef GEMMD_KERNELS_CUDA_OPS_QUANTIZE_CHUNK_CUH_
#define GEMMD_KERNELS_CUDA_OPS_QUANTIZE_CHUNK_CUH_

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

  // The codes, four to a word.
  template <bool kI8>
  __device__ __forceinline__ void Encode(const ScaleDivisor& d,
                                         uint32_t (&codes)[kCodeWords]) const {
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
          quotient[j] = kNarrow ? DivideNarrowLifted(part[j], d) : DivideLifted(part[j], d);
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
};

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

#endif  // GEMMD_KERNELS_CUDA_OPS_QUANTIZE_CHUNK_CUH_
