// Runs of elements to and from FP32: vectorised, one pass, no allocation. The rounding and
// saturation rules of each type are in codec.h. `n` may be 0; arrays must not overlap; element
// alignment is enough.

#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace gemmd::kernels::cpu {

void ToF32(DType from, const std::byte* src, int64_t n, float* dst);
void FromF32(DType to, const float* src, int64_t n, std::byte* dst);

// dst[i] = src[i] * scale, in FP32.
void ToF32Scaled(DType from, const std::byte* src, int64_t n, float scale, float* dst);
// dst[i] = src[i] * factors[i], in FP32.
void ToF32Times(DType from, const std::byte* src, int64_t n, const float* factors, float* dst);
// dst[i] = round(src[i] / scale): a true division, so that every backend rounds alike.
void FromF32Divided(DType to, const float* src, int64_t n, float scale, std::byte* dst);

// `count` elements of `size_bytes` (1, 2 or 4), `stride` elements apart, to or from dense ones.
void Gather(int size_bytes, const std::byte* src, int64_t stride, int64_t count, std::byte* dst);
void Scatter(int size_bytes, const std::byte* src, int64_t count, std::byte* dst, int64_t stride);

// `value` rounded once (not to FP32 first) to `to`, into SizeBytes(to) bytes at `dst`.
void FromDouble(DType to, double value, std::byte* dst);

}  // namespace gemmd::kernels::cpu
