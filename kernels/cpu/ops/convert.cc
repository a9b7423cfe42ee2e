#include "kernels/cpu/ops/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/ops/codec.h"

namespace gemmd::kernels::cpu {
namespace {

GEMMD_ALWAYS_INLINE void ToF32Body(DType from, const std::byte* src, int64_t n, float* dst) {
  WithDType(
      from, [=]<DType T>() __attribute__((always_inline)) {
        const auto* in = reinterpret_cast<const typename Codec<T>::Stored*>(src);
        for (int64_t i = 0; i < n; ++i) dst[i] = Codec<T>::Load(in[i]);
      });
}

GEMMD_ALWAYS_INLINE void FromF32Body(DType to, const float* src, int64_t n, std::byte* dst) {
  WithDType(
      to, [=]<DType T>() __attribute__((always_inline)) {
        auto* out = reinterpret_cast<typename Codec<T>::Stored*>(dst);
        for (int64_t i = 0; i < n; ++i) out[i] = Codec<T>::Store(src[i]);
      });
}

GEMMD_ALWAYS_INLINE void ToF32ScaledBody(DType from, const std::byte* src, int64_t n, float scale,
                                         float* dst) {
  WithDType(
      from, [=]<DType T>() __attribute__((always_inline)) {
        const auto* in = reinterpret_cast<const typename Codec<T>::Stored*>(src);
        for (int64_t i = 0; i < n; ++i) dst[i] = Codec<T>::Load(in[i]) * scale;
      });
}

GEMMD_ALWAYS_INLINE void ToF32TimesBody(DType from, const std::byte* src, int64_t n,
                                        const float* factors, float* dst) {
  WithDType(
      from, [=]<DType T>() __attribute__((always_inline)) {
        const auto* in = reinterpret_cast<const typename Codec<T>::Stored*>(src);
        for (int64_t i = 0; i < n; ++i) dst[i] = Codec<T>::Load(in[i]) * factors[i];
      });
}

GEMMD_ALWAYS_INLINE void FromF32DividedBody(DType to, const float* src, int64_t n, float scale,
                                            std::byte* dst) {
  WithDType(
      to, [=]<DType T>() __attribute__((always_inline)) {
        auto* out = reinterpret_cast<typename Codec<T>::Stored*>(dst);
        for (int64_t i = 0; i < n; ++i) out[i] = Codec<T>::Store(src[i] / scale);
      });
}

// The dense side may be bytes of a message, which start anywhere.
template <class T>
void GatherAs(const std::byte* src, int64_t stride, int64_t count, std::byte* dst) {
  const T* in = reinterpret_cast<const T*>(src);
  for (int64_t i = 0; i < count; ++i) std::memcpy(dst + i * sizeof(T), &in[i * stride], sizeof(T));
}

template <class T>
void ScatterAs(const std::byte* src, int64_t count, std::byte* dst, int64_t stride) {
  T* out = reinterpret_cast<T*>(dst);
  for (int64_t i = 0; i < count; ++i) std::memcpy(&out[i * stride], src + i * sizeof(T), sizeof(T));
}

// Rounded to odd: the last bit set whenever anything was cut off. A second rounding, to a type with
// at least two bits less, then goes the way a single one would have gone.
float RoundToOdd(double value) {
  float result = static_cast<float>(value);
  if (!std::isfinite(result) || static_cast<double>(result) == value) return result;
  // Step back to the neighbour towards zero, if the cast rounded away from it.
  if (std::abs(static_cast<double>(result)) > std::abs(value)) {
    result = std::nextafter(result, 0.0f);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(result) | 1u);
}

}  // namespace

GEMMD_ISA_CLONES(ToF32, (DType from, const std::byte* src, int64_t n, float* dst),
                 (from, src, n, dst))
GEMMD_ISA_CLONES(FromF32, (DType to, const float* src, int64_t n, std::byte* dst),
                 (to, src, n, dst))
GEMMD_ISA_CLONES(ToF32Scaled,
                 (DType from, const std::byte* src, int64_t n, float scale, float* dst),
                 (from, src, n, scale, dst))
GEMMD_ISA_CLONES(ToF32Times,
                 (DType from, const std::byte* src, int64_t n, const float* factors, float* dst),
                 (from, src, n, factors, dst))
GEMMD_ISA_CLONES(FromF32Divided,
                 (DType to, const float* src, int64_t n, float scale, std::byte* dst),
                 (to, src, n, scale, dst))

void Gather(int size_bytes, const std::byte* src, int64_t stride, int64_t count, std::byte* dst) {
  if (stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(count * size_bytes));
  } else if (size_bytes == 1) {
    GatherAs<uint8_t>(src, stride, count, dst);
  } else if (size_bytes == 2) {
    GatherAs<uint16_t>(src, stride, count, dst);
  } else {
    GatherAs<uint32_t>(src, stride, count, dst);
  }
}

void Scatter(int size_bytes, const std::byte* src, int64_t count, std::byte* dst, int64_t stride) {
  if (stride == 1) {
    std::memcpy(dst, src, static_cast<size_t>(count * size_bytes));
  } else if (size_bytes == 1) {
    ScatterAs<uint8_t>(src, count, dst, stride);
  } else if (size_bytes == 2) {
    ScatterAs<uint16_t>(src, count, dst, stride);
  } else {
    ScatterAs<uint32_t>(src, count, dst, stride);
  }
}

void FromDouble(DType to, double value, std::byte* dst) {
  if (to == DType::kI32) {  // to the nearest, saturated; NaN is 0
    const double nearest = std::nearbyint(std::clamp(value, -2147483648.0, 2147483647.0));
    const int32_t number = std::isnan(value) ? 0 : static_cast<int32_t>(nearest);
    std::memcpy(dst, &number, sizeof(number));
    return;
  }
  const float f32 = to == DType::kF32 ? static_cast<float>(value) : RoundToOdd(value);
  FromF32(to, &f32, 1, dst);
}

}  // namespace gemmd::kernels::cpu
