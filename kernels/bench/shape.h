// Shape: the sizes of one matmul, D[m,n] = A[m,k] . B[n,k]^T.

#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"

namespace gemmd::kernels::bench {

struct Shape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;

  double flops() const { return 2.0 * m * n * k; }
  // What a matmul of that type into 16 bits must move, each byte once: E4M3 with 1x128 and 128x128
  // scales, INT8 with scales by row, BF16 and FP16 without.
  double bytes(DType dtype = DType::kE4M3) const {
    const double values = (1.0 * m * k + 1.0 * n * k) * SizeBytes(dtype) + 2.0 * m * n;
    if (dtype == DType::kI8) return values + 4.0 * (m + n);
    if (dtype != DType::kE4M3) return values;
    const double blocks_n = (n + 127) / 128;
    const double blocks_k = (k + 127) / 128;
    return values + 4.0 * m * blocks_k + 4.0 * blocks_n * blocks_k;
  }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Both ends are within.
struct RowRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();

  bool contains(int64_t rows) const { return least <= rows && rows <= most; }
};

inline std::string ToString(const Shape& s) { return absl::StrCat(s.m, "x", s.n, "x", s.k); }

}  // namespace gemmd::kernels::bench
