// The last step of every matmul kernel: alpha, beta * C, bias, activation, rounding to D.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/matmul/matmul.h"

namespace gemmd::kernels::cpu {

// A block of D.
struct Tile {
  int64_t batch = 0;
  int64_t row0 = 0;
  int64_t rows = 0;
  int64_t col0 = 0;
  int64_t cols = 0;
};

// D = activation(alpha * acc + beta * C + bias) on `tile`, computed in the accumulator's type;
// SiLU and GELU in FP32.
// acc: [rows, cols], `ld` elements between rows; null for a product of zeros.
void StoreTile(const MatmulRun& run, const Tile& tile, const float* acc, int64_t ld);
void StoreTile(const MatmulRun& run, const Tile& tile, const double* acc, int64_t ld);

// StoreTile of zeros over the whole of D: what a matmul with k = 0 or alpha = 0 leaves.
void StoreWithoutProduct(const MatmulRun& run);

// Calls `fn` for each tile of D of at most rows x cols, columns last, until the run is stopped.
void ForEachTile(const MatmulRun& run, int64_t rows, int64_t cols,
                 absl::FunctionRef<void(const MatmulRun&, const Tile&)> fn);

}  // namespace gemmd::kernels::cpu
