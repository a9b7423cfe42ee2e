// Operands that lie as the copy engine cannot read them, copied so that it can: transposed, of rows
// that are no multiples of 16 bytes, or strided both ways. And FP32 ones, as BF16 parts.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gemmd::kernels::cuda {

// dst[batch, row, k] = src[batch, row, k], strides in elements; src and dst must not overlap. Rows
// of dst are filled up with zeros to dst_ld.
struct OperandCopyArgs {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t k = 0;
  int element_bytes = 1;
  const void* src = nullptr;  // [batch, rows, k], any strides
  int64_t src_batch = 0;
  int64_t src_row = 0;
  int64_t src_k = 1;
  void* dst = nullptr;  // at a multiple of 16 bytes, [batch, rows, dst_ld]; for parts see below
  int64_t dst_ld = 0;   // a multiple of 16 bytes, k or more
};

// Queues one or two, of elements of one size, 1 or 2 bytes, as one kernel on `stream` of the
// current device. `programmatic`: the launch may overlap the previous kernel's end. Nothing to do
// is success.
cudaError_t LaunchOperandCopies(const OperandCopyArgs* copies, int count, bool programmatic,
                                cudaStream_t stream);

// Likewise of FP32 elements: dst is [batch, kFloatParts, rows, dst_ld] of BF16 (float_parts.h).
cudaError_t LaunchOperandParts(const OperandCopyArgs* copies, int count, bool programmatic,
                               cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
