// How sm90_any_gemm divides a matmul: its launch and its model agree by this.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda {

inline constexpr int kAnyTile = 64;  // rows and columns of D a CTA computes

// Where `tiles` are too few to keep the SMs busy, CTAs of a cluster share k: the logarithm of how
// many. Each takes whole blocks of 128 k's, at least one.
constexpr int AnyGemmLog2Parts(int64_t tiles, int64_t k) {
  constexpr int kMost = 3;
  constexpr int64_t kFewCtas = 2 * 132;
  const int64_t blocks = (k + 127) / 128;
  int log2 = 0;
  while (log2 < kMost && tiles << (log2 + 1) <= kFewCtas && 2 << log2 <= blocks) ++log2;
  return log2;
}

}  // namespace gemmd::kernels::cuda
