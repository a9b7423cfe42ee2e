// Layer and RMS norms of rows on the device, rounded or quantised in the same pass. The formula is
// NormalizeOp's (kernels/op.h).
//
// Dense rows in 16-byte aligned memory are read once, and stay in registers for their sums and
// results. All else takes a slower kernel, which reads them three times.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/element.h"

namespace gemmd::kernels::cuda {

// Strides are in elements, at least 0 for src, and such that no two elements of dst or scales
// share memory. src, dst and scales must not overlap.
struct NormalizeArgs {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t n = 0;
  const void* src = nullptr;                  // [batch, rows, n]
  ElementType src_type = ElementType::kBF16;  // kF32, kBF16 or kF16
  int64_t src_batch = 0;
  int64_t src_row = 0;
  int64_t src_col = 1;
  const void* addend = nullptr;  // as src, with strides of its own; null: none
  int64_t addend_batch = 0;
  int64_t addend_row = 0;
  int64_t addend_col = 1;
  void* sum = nullptr;  // likewise, written; null: not kept. May be src or the addend itself
  int64_t sum_batch = 0;
  int64_t sum_row = 0;
  int64_t sum_col = 1;
  void* dst = nullptr;                        // [batch, rows, n]
  ElementType dst_type = ElementType::kE4M3;  // kF32, kBF16, kF16 or kE4M3
  int64_t dst_batch = 0;
  int64_t dst_row = 0;
  int64_t dst_col = 1;
  float* scales = nullptr;  // [batch, rows, ceil(n/128)] for E4M3
  int64_t scales_batch = 0;
  int64_t scales_row = 0;
  int64_t scales_block = 0;
  const float* weight = nullptr;  // [n]; null: 1
  int64_t weight_stride = 1;
  const float* bias = nullptr;  // [n]; null: 0
  int64_t bias_stride = 1;
  float epsilon = 1e-5f;
  bool centered = false;
  bool programmatic = false;  // the launch may overlap the previous kernel's end
  bool independent = false;   // and need not wait for it first (independent.h)
};

// Queues it on `stream` of the current device; cudaErrorInvalidValue for a type that is none of the
// above. An empty dst is success.
cudaError_t LaunchNormalize(const NormalizeArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
