// Scales of [rows, k] as the kernels read them: one k block's of all rows in a run.

#pragma once

#include "kernels/bench/cuda/extents.h"
#include "kernels/tensor.h"

namespace gemmd::kernels::bench {

inline TensorRef RowScales(int slot, int64_t rows, int64_t k) {
  TensorRef scales = Dense(slot, DType::kF32, MakeDims({rows, BlocksOf(k)}));
  scales.strides = MakeDims({1, RoundUp4(rows)});
  return scales;
}

}  // namespace gemmd::kernels::bench
