// Quotients and multiples, rounded up.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda {

// Of addresses and strides that TMA reads by.
inline constexpr int64_t kTmaBytes = 16;

inline int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
inline int64_t RoundUp(int64_t value, int64_t step) { return CeilDiv(value, step) * step; }

}  // namespace gemmd::kernels::cuda
