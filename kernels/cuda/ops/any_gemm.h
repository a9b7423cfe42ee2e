// sm90_any_gemm: the fallback of the pool. Takes every matmul that ValidateOps lets through, at
// whatever strides, alignment, shape, type and scale granularity, and is exact for INT8.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/element.h"

namespace gemmd::kernels::cuda {

inline constexpr char kAnyGemmName[] = "sm90_any_gemm";

// The scales of an operand [batch, rows, k] of any granularity: the factor of (row, k) is
// data[batch * batch_stride + row' * row_stride + k / 128 * k_stride], where row' is row, or
// row / 128 if row_blocks. No scales: data null. Per tensor: row_stride and k_stride 0. Per row:
// k_stride 0. Strides in floats.
struct ScaleView {
  const float* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t k_stride = 0;
  bool row_blocks = false;
};

// [batch, rows, k]; strides in elements, at least 0. A batch stride of 0 shares one matrix.
struct AnyOperand {
  const void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t k_stride = 1;
  ScaleView scales;
};

// [batch, m, n]; strides in elements.
struct AnyResult {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 1;
};

// D = act(alpha * A[m, k] . B[n, k]^T + beta * C + bias[n]), summed in FP32; INT8 within 128 k's in
// INT32, across them and to the end in FP64, so that any k is exact until D is rounded.
// d must not overlap anything but c, which may be d itself.
struct AnyGemmArgs {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  ElementType type = ElementType::kE4M3;    // of a
  ElementType b_type = ElementType::kE4M3;  // of b: a's, or one of E4M3 and E5M2 as a's
  AnyOperand a;                             // rows are m
  AnyOperand b;                             // rows are n
  ElementType out = ElementType::kBF16;     // of d and c: kF32, kBF16 or kF16
  AnyResult d;
  AnyResult c;                 // not read, and may be null, when beta is 0
  const void* bias = nullptr;  // [n] or null
  int64_t bias_stride = 1;
  ElementType bias_type = ElementType::kF32;  // kF32 or `out`
  float alpha = 1.0f;                         // 0: a and b are not read
  float beta = 0.0f;
  ActivationType activation = ActivationType::kNone;
  bool programmatic = false;  // the launch may overlap the previous kernel's end
};

// Queues it on `stream` of the current device. An empty d is success.
cudaError_t LaunchAnyGemm(const AnyGemmArgs& args, cudaStream_t stream);

}  // namespace gemmd::kernels::cuda
