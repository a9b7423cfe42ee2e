#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/bench/cuda/operands.h"

namespace gemmd::kernels::bench {
namespace {

constexpr int kBlock = 128;  // elements that share a scale, along k or both ways
constexpr int kThreads = 256;
constexpr int kMaxGrid = 8192;  // loops over the rest
constexpr float kMaxE4m3 = 448.0f, kMaxI8 = 127.0f;

__device__ uint64_t Mix(uint64_t z) {  // splitmix64's finaliser
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Box-Muller over two 24-bit uniforms; the first is in (0, 1], so the logarithm is finite.
__device__ float Normal(uint64_t seed, int64_t index) {
  const uint64_t bits = Mix(seed * 0x2545f4914f6cdd1dull +
                            (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15ull);
  const float u = static_cast<float>((bits >> 40) + 1) * 0x1p-24f;
  const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
}

__device__ float WarpMax(float x) {
  for (int lane = 16; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lane));
  return x;
}

__device__ float ScaleOf(float amax, BlockCode code) {
  return amax > 0 ? amax / (code == BlockCode::kI8 ? kMaxI8 : kMaxE4m3) : 1.0f;
}

__device__ uint8_t Quantize(float x, float scale, BlockCode code) {
  if (code == BlockCode::kI8) return static_cast<uint8_t>(static_cast<int8_t>(rintf(x / scale)));
  return __nv_cvt_float_to_fp8(x / scale, __NV_SATFINITE, __NV_E4M3);
}

// One warp a block of 1x128, four elements a lane.
__global__ void __launch_bounds__(kThreads)
    Quantize1x128Kernel(uint64_t seed, int64_t rows, int64_t k, uint8_t* values, float* scales,
                        int64_t scales_ld, BlockCode code) {
  const int lane = threadIdx.x % 32;
  const int64_t blocks_k = (k + kBlock - 1) / kBlock;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
       i < rows * blocks_k; i += warps) {
    const int64_t row = i / blocks_k;
    const int64_t block = i % blocks_k;
    float x[4];
    float amax = 0;
    for (int j = 0; j < 4; ++j) {
      const int64_t column = block * kBlock + j * 32 + lane;
      x[j] = column < k ? Normal(seed, row * k + column) : 0.0f;
      amax = fmaxf(amax, fabsf(x[j]));
    }
    const float scale = ScaleOf(WarpMax(amax), code);
    for (int j = 0; j < 4; ++j) {
      const int64_t column = block * kBlock + j * 32 + lane;
      if (column < k) values[row * k + column] = Quantize(x[j], scale, code);
    }
    if (lane == 0) scales[block * scales_ld + row] = scale;
  }
}

// One CTA a block of 128x128. Values are made twice, which is cheaper than keeping them.
__global__ void __launch_bounds__(kThreads)
    Quantize128x128Kernel(uint64_t seed, int64_t rows, int64_t k, uint8_t* values, float* scales,
                          int64_t scales_ld, BlockCode code) {
  __shared__ float warp_max[kThreads / 32];
  const int64_t blocks_k = (k + kBlock - 1) / kBlock;
  const int64_t blocks = (rows + kBlock - 1) / kBlock * blocks_k;
  for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
    const int64_t first_row = i / blocks_k * kBlock;
    const int64_t first_column = i % blocks_k * kBlock;
    float amax = 0;
    for (int e = threadIdx.x; e < kBlock * kBlock; e += kThreads) {
      const int64_t row = first_row + e / kBlock;
      const int64_t column = first_column + e % kBlock;
      if (row < rows && column < k) amax = fmaxf(amax, fabsf(Normal(seed, row * k + column)));
    }
    amax = WarpMax(amax);
    if (threadIdx.x % 32 == 0) warp_max[threadIdx.x / 32] = amax;
    __syncthreads();  // every warp's maximum is written; all threads read them
    for (int w = 0; w < kThreads / 32; ++w) amax = fmaxf(amax, warp_max[w]);
    __syncthreads();  // all have read; the next block's maxima may overwrite them
    const float scale = ScaleOf(amax, code);
    for (int e = threadIdx.x; e < kBlock * kBlock; e += kThreads) {
      const int64_t row = first_row + e / kBlock;
      const int64_t column = first_column + e % kBlock;
      if (row < rows && column < k) {
        values[row * k + column] = Quantize(Normal(seed, row * k + column), scale, code);
      }
    }
    if (threadIdx.x == 0) scales[i / blocks_k * scales_ld + i % blocks_k] = scale;
  }
}

// One warp a row. Values are made twice, which is cheaper than keeping them.
__global__ void __launch_bounds__(kThreads)
    QuantizeRowsKernel(uint64_t seed, int64_t rows, int64_t k, uint8_t* values, float* scales,
                       BlockCode code) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kThreads / 32);
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
       row < rows; row += warps) {
    float amax = 0;
    for (int64_t i = lane; i < k; i += 32) amax = fmaxf(amax, fabsf(Normal(seed, row * k + i)));
    amax = WarpMax(amax);
    const float scale = ScaleOf(amax, code);
    for (int64_t i = lane; i < k; i += 32) {
      values[row * k + i] = Quantize(Normal(seed, row * k + i), scale, code);
    }
    if (lane == 0) scales[row] = scale;
  }
}

__device__ void Round(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }
__device__ void Round(float x, __half& to) { to = __float2half_rn(x); }

template <class T>
__global__ void __launch_bounds__(kThreads) RandomKernel(uint64_t seed, int64_t count, T* values) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    Round(Normal(seed, i), values[i]);
  }
}

int GridFor(int64_t work, int64_t per_cta) {
  const int64_t ctas = (work + per_cta - 1) / per_cta;
  return static_cast<int>(ctas < kMaxGrid ? ctas : kMaxGrid);
}

template <class T>
cudaError_t Random(uint64_t seed, int64_t count, T* values, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  RandomKernel<<<GridFor(count, kThreads), kThreads, 0, stream>>>(seed, count, values);
  return cudaGetLastError();
}

}  // namespace

cudaError_t QuantizeRandom1x128(uint64_t seed, int64_t rows, int64_t k, uint8_t* values,
                                float* scales, int64_t scales_ld, cudaStream_t stream,
                                BlockCode code) {
  const int64_t blocks = rows * ((k + kBlock - 1) / kBlock);
  if (blocks == 0) return cudaSuccess;
  Quantize1x128Kernel<<<GridFor(blocks, kThreads / 32), kThreads, 0, stream>>>(
      seed, rows, k, values, scales, scales_ld, code);
  return cudaGetLastError();
}

cudaError_t QuantizeRandom128x128(uint64_t seed, int64_t rows, int64_t k, uint8_t* values,
                                  float* scales, int64_t scales_ld, cudaStream_t stream,
                                  BlockCode code) {
  const int64_t blocks = (rows + kBlock - 1) / kBlock * ((k + kBlock - 1) / kBlock);
  if (blocks == 0) return cudaSuccess;
  Quantize128x128Kernel<<<GridFor(blocks, 1), kThreads, 0, stream>>>(seed, rows, k, values, scales,
                                                                     scales_ld, code);
  return cudaGetLastError();
}

cudaError_t RandomBf16(uint64_t seed, int64_t rows, int64_t k, uint16_t* values,
                       cudaStream_t stream) {
  return Random(seed, rows * k, reinterpret_cast<__nv_bfloat16*>(values), stream);
}

cudaError_t RandomF16(uint64_t seed, int64_t rows, int64_t k, uint16_t* values,
                      cudaStream_t stream) {
  return Random(seed, rows * k, reinterpret_cast<__half*>(values), stream);
}

cudaError_t QuantizeRandomRows(uint64_t seed, int64_t rows, int64_t k, uint8_t* values,
                               float* scales, cudaStream_t stream, BlockCode code) {
  if (rows * k == 0) return cudaSuccess;
  QuantizeRowsKernel<<<GridFor(rows, kThreads / 32), kThreads, 0, stream>>>(seed, rows, k, values,
                                                                            scales, code);
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
