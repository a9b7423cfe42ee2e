// Quantize on the device: FP32, BF16 or FP16 to E4M3 or INT8 with one FP32 scale a block. The
// formula and its edge cases are QuantizeOp's (kernels/op.h); results equal the CPU backend's bit
// for bit.
//
// Dense rows in 16-byte aligned memory go at memory speed for blocks of 1x128 and 128x128, and of
// up to 64 KiB with a scale for each row; every other shape, stride, alignment and granularity
// takes a slower kernel that serves them all.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/element.h"
#include "kernels/data_fault.h"

namespace gemmd::kernels::cuda {

enum class QuantizeBlock : uint8_t {
  kTensor,   // scales [batch]
  kRow,      // scales [batch, rows]
  k1x128,    // scales [batch, rows, ceil(k/128)]
  k128x128,  // scales [batch, ceil(rows/128), ceil(k/128)]
};

// Strides are in elements, at least 0 for src, and such that no two elements of dst or scales
// share memory. src, dst and scales must not overlap.
struct QuantizeArgs {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t k = 0;
  const void* src = nullptr;                  // [batch, rows, k]
  ElementType src_type = ElementType::kBF16;  // kF32, kBF16 or kF16
  int64_t src_batch = 0;
  int64_t src_row = 0;
  int64_t src_k = 1;
  void* dst = nullptr;                        // [batch, rows, k]
  ElementType dst_type = ElementType::kE4M3;  // kE4M3, kE5M2 or kI8
  int64_t dst_batch = 0;
  int64_t dst_row = 0;
  int64_t dst_k = 1;
  // m-major scales, as the FP8 GEMM takes A's: scales_row 1, scales_k ceil(rows/4)*4. Row-major
  // ones: scales_row ceil(k/128), scales_k 1. A block's row and column count in blocks.
  float* scales = nullptr;
  int64_t scales_batch = 0;
  int64_t scales_row = 0;
  int64_t scales_k = 0;
  QuantizeBlock block = QuantizeBlock::k1x128;
  // [rows]: where each row of dst lies in src, which has src_rows of them; -1: nowhere. Null: row i
  // is row i. Of kRow and k1x128.
  const int32_t* from = nullptr;
  int64_t src_rows = 0;
  DataFault* fault = nullptr;  // written when a number of `from` is no row
  bool programmatic = false;   // the launch may overlap the previous kernel's end
  bool independent = false;    // and need not wait for it first (independent.h)
};

// Queues it on `stream` of the current device; cudaErrorInvalidValue for a type or block that is
// none of the above. A problem without elements writes the scales it has (1), which may be none.
cudaError_t LaunchQuantize(const QuantizeArgs& args, cudaStream_t stream);

// Of E4M3 and INT8 with a scale for each row, those rows' kernels; LaunchQuantize calls it.
inline constexpr int64_t kMostRowBytes = 64 << 10;
cudaError_t LaunchQuantizeRows(const QuantizeArgs& args, cudaStream_t stream);

// The kernels that take anything; LaunchQuantize calls it where the fast ones do not fit.
cudaError_t LaunchQuantizeAny(const QuantizeArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
