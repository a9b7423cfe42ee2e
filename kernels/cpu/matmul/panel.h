// Panel: a block of an operand as FP32 in cache, scales multiplied in, ready for cblas_sgemm.

#pragma once

#include <cstdint>

#include "kernels/cpu/bound.h"
#include "kernels/cpu/matmul/matmul.h"

namespace gemmd::kernels::cpu {

struct Block {
  int64_t row0 = 0;
  int64_t rows = 0;
  int64_t k0 = 0;
  int64_t ks = 0;
};

struct Panel {
  const float* data = nullptr;
  int64_t ld = 0;            // elements between rows, or between k's
  bool k_contiguous = true;  // [rows][ks], else [ks][rows]
};

// Floats that LoadPanel needs for a block of `rows` x `ks`.
inline int64_t PanelFloats(int64_t rows, int64_t ks) { return (rows + 16) * (ks + 16); }

// Converts a block of `values` into `storage`, shared out over the workers. An FP32 block without
// scales that sgemm can take is not copied: the panel then points at the operand itself.
Panel LoadPanel(const BoundMatrix& values, const BoundScales& scales, const Block& block,
                float* storage, const RunContext& context);

// c[m, n] = a . b^T + beta * c, row-major, by cblas_sgemm.
void MultiplyPanels(const Panel& a, const Panel& b, int64_t m, int64_t n, int64_t k, float beta,
                    float* c, int64_t ldc);

}  // namespace gemmd::kernels::cpu
