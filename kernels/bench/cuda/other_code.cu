#include "kernels/bench/cuda/other_code.h"

namespace gemmd::kernels::bench {
namespace {

// Straight-line code of 64 KiB; a longer loop would not be unrolled.
constexpr int kInstructions = 4096;
constexpr int kThreads = 128;  // a warp for each quarter of an SM

__device__ __forceinline__ float Piece(float x, float factor) {
#pragma unroll
  for (int i = 0; i < kInstructions; ++i) x = x * factor + factor;
  return x;
}

__global__ void __launch_bounds__(kThreads) OtherCode(float factor, float* sink) {
  float x = static_cast<float>(threadIdx.x);
  x = Piece(x, factor);
  x = Piece(x, factor);
  x = Piece(x, factor);
  if (x == 0.123f) *sink = x;  // it never is: whole numbers are added up
}

}  // namespace

cudaError_t LaunchOtherCode(float* sink, int sms, cudaStream_t stream) {
  OtherCode<<<sms, kThreads, 0, stream>>>(1.0f, sink);
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
