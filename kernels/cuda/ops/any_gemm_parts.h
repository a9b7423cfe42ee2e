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

// Rows of FP32 tiles: few rows of A have kernels of their own (any_gemm_few.cuh), which know no
// scales.
constexpr int AnyFloatTileRows(int64_t m, bool has_scales) {
  constexpr int64_t kMostFewRows = 128;
  if (has_scales || m > kMostFewRows) return kAnyTile;
  return m <= 8 ? 8 : m <= 16 ? 16 : 32;
}

// Whether D is computed with its rows as columns: then few rows of B are few rows of A. A bias is
// of columns.
constexpr bool AnyFloatTurns(int64_t m, int64_t n, bool has_bias) {
  return !has_bias && n < m && n <= 32;
}

// How they read B: four neighbours at a time, along k or along its rows, or one by one.
enum class FewWalk : uint8_t { kAlongK, kAlongRows, kAnywhere };
// `along_k`, `along_rows`: its elements are neighbours there, and its lines begin at multiples of
// 16 bytes.
constexpr FewWalk FewWalkOf(int64_t n, int64_t k, bool along_k, bool along_rows) {
  if (along_k && k % 4 == 0) return FewWalk::kAlongK;
  return along_rows && n % 4 == 0 ? FewWalk::kAlongRows : FewWalk::kAnywhere;
}

}  // namespace gemmd::kernels::cuda
