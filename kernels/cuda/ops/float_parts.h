// FP32 matmuls by BF16 tensor cores: each number is the sum of three BF16s, its parts, and of a
// product's nine the six largest are taken. The three that are left out are 2^-23 of it at most, as
// much as an FP32 addition rounds away.

#pragma once

namespace gemmd::kernels::cuda {

inline constexpr int kFloatParts = 3;  // high, mid and low
inline constexpr int kFloatProducts = 6;

// The products, smallest first: mid mid, low high, high low, mid high, high mid, high high.
constexpr int PartOfA(int product) { return 0x049 >> 2 * product & 3; }
constexpr int PartOfB(int product) { return 0x121 >> 2 * product & 3; }

}  // namespace gemmd::kernels::cuda
