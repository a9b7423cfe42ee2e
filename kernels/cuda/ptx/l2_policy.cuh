// L2 eviction priorities, as loads and stores take them: PTX ISA 9.7.9.22 createpolicy, what
// .L2::evict_* with a fraction of 1 makes.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

inline constexpr uint64_t kEvictNormal = 0x1000000000000000;
inline constexpr uint64_t kEvictFirst = 0x12F0000000000000;
inline constexpr uint64_t kEvictLast = 0x14F0000000000000;

}  // namespace gemmd::kernels::cuda::ptx
