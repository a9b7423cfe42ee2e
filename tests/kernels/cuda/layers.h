// A program of quantisations and matmuls in turns, as a decode step has them.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace gemmd::kernels::cuda {

// x = x . w, `layers` times over, with x [m, n] and w [n, n], n a multiple of 128 and m of 4.
// Slots: x in BF16, its E4M3 values, their scales, w in E4M3, its scales.
inline std::vector<Op> Layers(int64_t m, int64_t n, int layers) {
  const TensorRef x = Dense(0, DType::kBF16, MakeDims({m, n}));
  MatmulOp matmul;
  matmul.a = {Dense(1, DType::kE4M3, MakeDims({m, n})), ScaleGranularity::kBlock1x128,
              TensorRef{2, 0, DType::kF32, MakeDims({m, n / 128}), MakeDims({1, m})}};
  matmul.b = {Dense(3, DType::kE4M3, MakeDims({n, n})), ScaleGranularity::kBlock128x128,
              Dense(4, DType::kF32, MakeDims({n / 128, n / 128}))};
  matmul.d = x;
  std::vector<Op> ops;
  for (int i = 0; i < layers; ++i) {
    ops.push_back(QuantizeOp{x, matmul.a.values, *matmul.a.scales, matmul.a.granularity});
    ops.push_back(matmul);
  }
  return ops;
}

}  // namespace gemmd::kernels::cuda
