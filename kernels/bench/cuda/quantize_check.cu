#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include "kernels/bench/cuda/quantize_check.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kGrid = 1024;

__device__ double WarpSum(double x) {
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  return x;
}

__global__ void __launch_bounds__(kThreads) ErrorsKernel(QuantizedMatrix q, double* sums) {
  const __nv_bfloat16* source = reinterpret_cast<const __nv_bfloat16*>(q.source);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  double dd = 0;
  double yy = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < q.rows * q.k;
       i += step) {
    const int64_t row = i / q.k;
    const int64_t column = i % q.k;
    const __half_raw half = __nv_cvt_fp8_to_halfraw(q.values[i], __NV_E4M3);
    const float scale = q.scales[row / q.rows_per_scale * q.row_stride + column / 128 * q.k_stride];
    const float code =
        q.int8 ? static_cast<float>(static_cast<int8_t>(q.values[i])) : __half2float(__half(half));
    const double x = static_cast<double>(code) * scale;
    const double y = __bfloat162float(source[i]);
    dd += (x - y) * (x - y);
    yy += y * y;
  }
  dd = WarpSum(dd);
  yy = WarpSum(yy);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&sums[0], dd);
    atomicAdd(&sums[1], yy);
  }
}

}  // namespace

cudaError_t AddQuantizeErrors(const QuantizedMatrix& matrix, double* sums, cudaStream_t stream) {
  ErrorsKernel<<<kGrid, kThreads, 0, stream>>>(matrix, sums);
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
