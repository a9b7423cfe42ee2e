// Scales of [rows, k] as the kernels read them: one k block's of all rows in a run.

#ifndef GEMMD_KERNELS_BENCH_CUDA_GROUPED_ROW_SCALES_H_
#define GEMMD_KERNELS_BENCH_CUDA_GROUPED_ROW_SCALES_H_

#include "kernels/bench/cuda/extents.h"
#include "kernels/tensor.h"

namespace gemmd::kernels::bench {

inline TensorRef RowScales(int slot, int64_t rows, int64_t k) {
  TensorRef scales = Dense(slot, DType::kF32, MakeDims({rows, BlocksOf(k)}));
  scales.strides = MakeDims({1, RoundUp4(rows)});
  return scales;
}

}  // namespace gemmd::kernels::bench

#endif  // GEMMD_KERNELS_BENCH_CUDA_GROUPED_ROW_SCALES_H_
