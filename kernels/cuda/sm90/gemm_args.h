// One matmul with its addresses, as the launchers take it. Plain data: shared by host and device.

#pragma once

#include <cstdint>

#include "kernels/cuda/ops/activation.h"

namespace gemmd::kernels::cuda {

enum class OutType : uint8_t { kF32, kBF16, kF16 };

// D[batch, m, n] = act(alpha * A[batch, m, k] . B[batch, n, k]^T + beta * C + bias[n]), A and B of
// the type that the kernel multiplies (GemmConfig::mma). Strides are in elements. A stride of 0
// between batches of b (and of its scales) shares one matrix among all.
//
// E4M3 has FP32 block scales. INT8 has them too, or a scale for each row of A and of B, or none:
// a_scales[m * a_scales_ld], b_scales[n * b_scales_ld], where a distance of 0 is one scale for all.
// BF16 and FP16 have none. Of FP32 a and b are the parts, packed: [batch, kFloatParts, rows, ld].
struct GemmArgs {
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const uint8_t* a = nullptr;  // [batch, m, k], stride 1 along k; see a_along_rows
  int64_t lda = 0;
  int64_t a_batch = 0;
  const float* a_scales = nullptr;  // 1x128, m-major: [batch, ceil(k/128), m], stride 1 along m
  int64_t a_scales_ld = 0;          // floats between k blocks; a multiple of 4 for TMA
  int64_t a_scales_batch = 0;
  const uint8_t* b = nullptr;  // [batch, n, k], stride 1 along k; see b_along_rows
  int64_t ldb = 0;
  int64_t b_batch = 0;
  const float* b_scales = nullptr;  // 128x128: [batch, ceil(n/128), ceil(k/128)], stride 1 along k
  int64_t b_scales_ld = 0;          // floats between blocks of 128 rows
  int64_t b_scales_batch = 0;
  void* d = nullptr;  // [batch, m, n], stride 1 along n
  int64_t ldd = 0;
  int64_t d_batch = 0;
  const void* c = nullptr;  // as d; may be d; not read when beta is 0
  int64_t ldc = 0;
  int64_t c_batch = 0;
  const void* bias = nullptr;  // [n] or null
  OutType out = OutType::kBF16;
  bool bias_is_f32 = true;  // else of d's type
  bool relu = false;        // the activation is ReLU
  ActivationType activation = ActivationType::kNone;
  float alpha = 1.0f;
  float beta = 0.0f;
  bool b_along_rows = false;  // b is [batch, k, n], stride 1 along n: ldb is between k's
  bool a_along_rows = false;  // beside such a b, a is [batch, k, m], stride 1 along m
};

// Whether more is asked for than rounding to 16 bits.
constexpr bool NeedsFinish(const GemmArgs& args) {
  return args.out == OutType::kF32 || args.alpha != 1.0f || args.beta != 0.0f ||
         args.bias != nullptr || args.activation != ActivationType::kNone;
}
// Whether that is alpha, an FP32 bias or ReLU alone, which results can be given where they are.
constexpr bool OnlyAdjusts(const GemmArgs& args) {
  return NeedsFinish(args) && args.out != OutType::kF32 && args.beta == 0.0f &&
         (args.bias == nullptr || args.bias_is_f32) && args.activation <= ActivationType::kRelu;
}

}  // namespace gemmd::kernels::cuda
