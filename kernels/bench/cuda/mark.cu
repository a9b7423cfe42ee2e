#include "kernels/bench/cuda/mark.h"

namespace {

// Straight-line code of 64 KiB; a longer loop would not be unrolled. Of sums that wait for each
// other one in four, so that fetching the code is what takes its time.
constexpr int kInstructions = 4096;
constexpr int kSums = 4;
constexpr int kThreads = 128;  // a warp for each quarter of an SM

__device__ __forceinline__ void Piece(float (&x)[kSums], float factor) {
#pragma unroll
  for (int i = 0; i < kInstructions; ++i) x[i % kSums] = x[i % kSums] * factor + factor;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32) gemmd_bench_mark() {}

extern "C" __global__ void __launch_bounds__(kThreads)
    gemmd_bench_mark_other_code(float factor, float* sink) {
  float x[kSums];
  for (int i = 0; i < kSums; ++i) x[i] = static_cast<float>(threadIdx.x + i);
  Piece(x, factor);
  Piece(x, factor);
  Piece(x, factor);
  const float sum = x[0] + x[1] + x[2] + x[3];
  if (sum == 0.123f) *sink = sum;  // it never is: whole numbers are added up
}

namespace gemmd::kernels::bench {

cudaError_t LaunchMark(cudaStream_t stream) {
  gemmd_bench_mark<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t LaunchOtherCode(float* sink, int sms, cudaStream_t stream) {
  gemmd_bench_mark_other_code<<<sms, kThreads, 0, stream>>>(1.0f, sink);
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
