// Gated on the device: activation(gate) * up over the columns of one matrix, or of gates alone,
// rounded or quantised in the same pass. The formula is GatedOp's (kernels/op.h).
//
// Dense rows in 16-byte aligned memory go at memory speed if gate and up alternate, or lie in
// halves or in blocks of a power of two. Gates alone are bound by their activation's instructions.
// All else takes a slower kernel. Both give the same bits, and E4M3 has those that Quantize makes
// of FP32 results.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/element.h"

namespace gemmd::kernels::cuda {

// Strides are in elements, at least 0 for src, and such that no two elements of dst or scales
// share memory. src, dst and scales must not overlap.
struct GatedArgs {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t n = 0;                              // columns of dst
  const void* src = nullptr;                  // [batch, rows, 2n], or n where gates are alone
  ElementType src_type = ElementType::kBF16;  // kF32, kBF16 or kF16
  int64_t src_batch = 0;
  int64_t src_row = 0;
  int64_t src_col = 1;
  void* dst = nullptr;                        // [batch, rows, n]
  ElementType dst_type = ElementType::kE4M3;  // kF32, kBF16, kF16 or kE4M3
  int64_t dst_batch = 0;
  int64_t dst_row = 0;
  int64_t dst_col = 1;
  // [batch, rows, ceil(n/128)] for E4M3. As the FP8 GEMM takes A's: scales_row 1, scales_block
  // ceil(rows/4)*4.
  float* scales = nullptr;
  int64_t scales_batch = 0;
  int64_t scales_row = 0;
  int64_t scales_block = 0;
  int64_t period = 1;  // columns of gate that lie together; divides n
  bool alone = false;  // no ups: activation(gate), and no period
  ActivationType activation = ActivationType::kSilu;
  float alpha = 1.0f;
  float limit = 0.0f;  // 0: none
  float up_offset = 0.0f;
  const int32_t* owners = nullptr;  // [batch * rows]: rows below 0 are left alone; null: none are
  // Rows outside [*range_begin, *range_end) are left alone, too; null: none are. Of one batch.
  const int32_t* range_begin = nullptr;
  const int32_t* range_end = nullptr;
  bool range_first = false;   // it was there before the kernel in front went to work
  bool programmatic = false;  // the launch may overlap the previous kernel's end
  bool independent = false;   // and need not wait for it first (independent.h)
};

// Queues it on `stream` of the current device; cudaErrorInvalidValue for a type that is none of the
// above. An empty dst is success.
cudaError_t LaunchGated(const GatedArgs& args, cudaStream_t stream);

// The kernel that takes anything; LaunchGated calls it where the fast ones do not fit.
cudaError_t LaunchGatedAny(const GatedArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
