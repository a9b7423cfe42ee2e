// How far the operands' extents reach once they are rounded up.

#pragma once

#include <cstdint>

namespace gemmd::kernels::bench {

inline int64_t BlocksOf(int64_t x) { return (x + 127) / 128; }
inline int64_t RoundUp4(int64_t x) { return (x + 3) / 4 * 4; }

}  // namespace gemmd::kernels::bench
