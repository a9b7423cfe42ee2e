// FP32 results of a thread to memory, all at once: rounded, or as codes of their block's scale.

#pragma once

#include "kernels/cuda/ops/quantize_chunk.cuh"

namespace gemmd::kernels::cuda {

// Two numbers to 16 bits, none a NaN.
template <ElementType kTo>
__device__ __forceinline__ uint32_t PackNumbers(float low, float high) {
  uint32_t word;
  if constexpr (kTo == ElementType::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

// Results rounded to kTo, in stores of up to 16 bytes.
template <ElementType kTo, int kCount>
__device__ __forceinline__ void StoreRounded(char* to, const float* y) {
  constexpr int kPerWord = 4 / ElementBytes(kTo);
  constexpr int kWords = kCount / kPerWord;
  uint32_t words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = FromF32(kTo, y[i * kPerWord]);
    if constexpr (kPerWord == 2) words[i] |= FromF32(kTo, y[2 * i + 1]) << 16;
  }
  if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      reinterpret_cast<uint4*>(to)[i / 4] =
          make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
  }
}

// The codes of results of one block.
template <int kCount>
__device__ __forceinline__ void StoreQuantised(char* to, const float* y,
                                               const ScaleDivisor& divisor) {
  uint32_t codes[kCount / 4];
  if (divisor.lift || !(divisor.scale < kInf)) {  // hardly ever: in one branch
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint32_t code = QuantizeOne<false>(y[i], divisor) << (i % 4 * 8);
      codes[i / 4] = i % 4 == 0 ? code : codes[i / 4] | code;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      codes[i / 4] =
          ptx::E4m3x2FromF32(DivideLifted(y[i], divisor), DivideLifted(y[i + 1], divisor)) |
          ptx::E4m3x2FromF32(DivideLifted(y[i + 2], divisor), DivideLifted(y[i + 3], divisor))
              << 16;
    }
  }
  StoreCodes(reinterpret_cast<uint8_t*>(to), codes);
}

}  // namespace gemmd::kernels::cuda
