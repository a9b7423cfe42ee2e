// Quotients and multiples, rounded up.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda {

// Of addresses and strides that TMA reads by.
inline constexpr int64_t kTmaBytes = 16;
// A line of L2. A box's rows of 128 bytes that begin within lines are two requests each: that takes
// half as long again, wherever L2 is the bound.
inline constexpr int64_t kLineBytes = 128;
inline constexpr int64_t kTmaMaxStride = (int64_t{1} << 40) - 16;  // bytes; TMA: below 2^40

inline constexpr int64_t kScratchAlignment = 256;  // of each part of an op's scratch memory

inline int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
inline int64_t RoundUp(int64_t value, int64_t step) { return CeilDiv(value, step) * step; }

}  // namespace gemmd::kernels::cuda
