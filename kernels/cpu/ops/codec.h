// One element of each type to and from float, without branches, so that a loop over them
// vectorises. The arrays' versions are in convert.h; nothing else should include this.
//
// To float is exact. From float rounds to nearest, ties to even, and then:
//   F16, BF16  finite overflow and infinities give infinity; NaN stays NaN (quiet, sign kept)
//   E4M3       finite overflow and infinities give +-448; NaN stays NaN (sign kept); subnormals
//   kept I8         saturates to +-127, infinities too; NaN gives 0
//   E5M2       as F16: overflow and infinities give infinity; NaN stays NaN (quiet, sign kept)

#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cpu/isa.h"
#include "kernels/dtype.h"

namespace gemmd::kernels::cpu {

template <DType T>
struct Codec;

template <>
struct Codec<DType::kF32> {
  using Stored = float;
  static GEMMD_ALWAYS_INLINE float Load(Stored x) { return x; }
  static GEMMD_ALWAYS_INLINE Stored Store(float x) { return x; }
};

template <>
struct Codec<DType::kBF16> {
  using Stored = uint16_t;
  static GEMMD_ALWAYS_INLINE float Load(Stored x) {
    return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
  }
  static GEMMD_ALWAYS_INLINE Stored Store(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    // Half of the last kept place less one, plus that place's own bit: ties go to even. A carry out
    // of the largest finite number gives infinity by itself.
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40u;
    return static_cast<Stored>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

template <>
struct Codec<DType::kF16> {
  using Stored = uint16_t;
  static GEMMD_ALWAYS_INLINE float Load(Stored x) {
    const uint32_t magnitude = x & 0x7fffu;
    const uint32_t sign = (x & 0x8000u) << 16;
    // Exponent bias 15 becomes 127; 31 (infinity, NaN) becomes 255.
    const uint32_t normal = (magnitude << 13) + ((magnitude >= 0x7c00u ? 224u : 112u) << 23);
    // A subnormal m * 2^-24 is the fraction of 2^-14 * (1 + m / 1024), less the 1.
    const float subnormal =
        std::bit_cast<float>((magnitude << 13) | (113u << 23)) - std::bit_cast<float>(113u << 23);
    const uint32_t bits = magnitude < 0x400u ? std::bit_cast<uint32_t>(subnormal) : normal;
    return std::bit_cast<float>(bits | sign);
  }
  static GEMMD_ALWAYS_INLINE Stored Store(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded = ((magnitude + 0xfffu + ((magnitude >> 13) & 1u)) >> 13) - (112u << 10);
    const uint32_t normal = rounded > 0x7c00u ? 0x7c00u : rounded;
    // 0.5 has a last place of 2^-24, F16's smallest: adding it rounds there.
    const uint32_t tiny = magnitude < (113u << 23) ? magnitude : 0u;
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(tiny) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    const uint32_t nan = 0x7e00u | ((bits >> 13) & 0x3ffu);
    return static_cast<Stored>((magnitude > 0x7f800000u ? nan : finite) | sign);
  }
};

template <>
struct Codec<DType::kE4M3> {
  using Stored = uint8_t;
  static GEMMD_ALWAYS_INLINE float Load(Stored x) {
    const uint32_t magnitude = x & 0x7fu;
    const uint32_t sign = (x & 0x80u) << 24;
    const uint32_t normal = (magnitude << 20) + (120u << 23);  // exponent bias 7 becomes 127
    // A subnormal m * 2^-9 is the fraction of 2^-6 * (1 + m / 8), less the 1.
    const float subnormal =
        std::bit_cast<float>((magnitude << 20) | (121u << 23)) - std::bit_cast<float>(121u << 23);
    const uint32_t finite = magnitude < 8u ? std::bit_cast<uint32_t>(subnormal) : normal;
    return std::bit_cast<float>((magnitude == 0x7fu ? 0x7fc00000u : finite) | sign);
  }
  static GEMMD_ALWAYS_INLINE Stored Store(float x) {
    constexpr uint32_t kMax = 0x43e00000u;  // 448
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 24) & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t clamped = magnitude > kMax ? kMax : magnitude;
    const uint32_t normal = ((clamped + 0x7ffffu + ((clamped >> 20) & 1u)) >> 20) - (120u << 3);
    // 2^14 has a last place of 2^-9, E4M3's smallest: adding it rounds there.
    const uint32_t tiny = clamped < (121u << 23) ? clamped : 0u;
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(tiny) + 16384.0f) -
                               std::bit_cast<uint32_t>(16384.0f);
    const uint32_t finite = clamped < (121u << 23) ? subnormal : normal;
    return static_cast<Stored>((magnitude > 0x7f800000u ? 0x7fu : finite) | sign);
  }
};

// F16 with eight bits of fraction less.
template <>
struct Codec<DType::kE5M2> {
  using Stored = uint8_t;
  static GEMMD_ALWAYS_INLINE float Load(Stored x) {
    return Codec<DType::kF16>::Load(static_cast<uint16_t>(x << 8));
  }
  static GEMMD_ALWAYS_INLINE Stored Store(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 24) & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t rounded =
        ((magnitude + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21) - (112u << 2);
    const uint32_t normal = rounded > 0x7cu ? 0x7cu : rounded;
    // 128 has a last place of 2^-16, E5M2's smallest: adding it rounds there.
    const uint32_t tiny = magnitude < (113u << 23) ? magnitude : 0u;
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(tiny) + 128.0f) -
                               std::bit_cast<uint32_t>(128.0f);
    const uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    const uint32_t nan = 0x7eu | ((bits >> 21) & 0x3u);
    return static_cast<Stored>((magnitude > 0x7f800000u ? nan : finite) | sign);
  }
};

template <>
struct Codec<DType::kI8> {
  using Stored = int8_t;
  static GEMMD_ALWAYS_INLINE float Load(Stored x) { return static_cast<float>(x); }
  static GEMMD_ALWAYS_INLINE Stored Store(float x) {
    const float low = x < -127.0f ? -127.0f : x;
    const float clamped = low > 127.0f ? 127.0f : low;
    const float number = clamped == clamped ? clamped : 0.0f;
    // 1.5 * 2^23 has a last place of 1: adding it rounds to an integer, which its low bits then
    // are.
    const uint32_t bits = std::bit_cast<uint32_t>(number + 12582912.0f);
    return static_cast<Stored>(static_cast<int32_t>(bits & 0xffu));
  }
};

// Calls fn.template operator()<T>() with the run-time dtype as a template argument.
template <class Fn>
GEMMD_ALWAYS_INLINE void WithDType(DType dtype, Fn fn) {
  switch (dtype) {
    case DType::kF32:
      return fn.template operator()<DType::kF32>();
    case DType::kBF16:
      return fn.template operator()<DType::kBF16>();
    case DType::kF16:
      return fn.template operator()<DType::kF16>();
    case DType::kE4M3:
      return fn.template operator()<DType::kE4M3>();
    case DType::kI8:
      return fn.template operator()<DType::kI8>();
    case DType::kE5M2:
      return fn.template operator()<DType::kE5M2>();
    case DType::kI32:  // ValidateOps lets no op compute with it
      return;
  }
}

}  // namespace gemmd::kernels::cpu
