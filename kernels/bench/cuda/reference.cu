#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/bench/cuda/reference.h"

namespace gemmd::kernels::bench {
namespace {

using cuda::ElementType;
using cuda::GemmArgs;

constexpr int kTile = 64;  // rows and columns of D a CTA
constexpr int kStep = 16;  // of k
constexpr int kSide = 16;  // threads along each side; a thread has 4x4 results
constexpr int kEach = kTile / kSide;
constexpr int kThreads = kSide * kSide;
constexpr int kMaxGridY = 65535;

__device__ double Decode(const void* values, int64_t i, ElementType type) {
  switch (type) {
    case ElementType::kE4M3: {
      const uint8_t code = static_cast<const uint8_t*>(values)[i];
      return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
    }
    case ElementType::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(values)[i]);
    case ElementType::kF16:
      return __half2float(static_cast<const __half*>(values)[i]);
    case ElementType::kI8:
      return static_cast<const int8_t*>(values)[i];
    case ElementType::kF32:
      break;
  }
  return static_cast<const float*>(values)[i];
}

// Scales by row lie next to each other; of blocks, rows are at least four apart.
__device__ bool BlockScaled(const GemmArgs& args, ElementType type) {
  return (type == ElementType::kE4M3 || type == ElementType::kI8) && args.b_scales_ld > 1;
}

__device__ double ScaleOfA(const GemmArgs& args, ElementType type, int64_t row, int64_t kk) {
  if (args.a_scales == nullptr) return 1;
  return BlockScaled(args, type) ? args.a_scales[kk / 128 * args.a_scales_ld + row]
                                 : args.a_scales[row * args.a_scales_ld];
}
__device__ double ScaleOfB(const GemmArgs& args, ElementType type, int64_t column, int64_t kk) {
  if (args.b_scales == nullptr) return 1;
  return BlockScaled(args, type) ? args.b_scales[column / 128 * args.b_scales_ld + kk / 128]
                                 : args.b_scales[column * args.b_scales_ld];
}

__global__ void __launch_bounds__(kThreads)
    ReferenceKernel(GemmArgs args, ElementType type, ReferenceRows rows) {
  __shared__ double a[kStep][kTile + 1];
  __shared__ double b[kStep][kTile + 1];
  const int tx = threadIdx.x % kSide;
  const int ty = threadIdx.x / kSide;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t tiles = (rows.rows + kTile - 1) / kTile;
  for (int64_t tile = blockIdx.y; tile < tiles; tile += gridDim.y) {
    double sum[kEach][kEach] = {};
    for (int64_t first_k = 0; first_k < args.k; first_k += kStep) {
      for (int e = threadIdx.x; e < kTile * kStep; e += kThreads) {
        const int i = e / kStep;
        const int64_t kk = first_k + e % kStep;
        const int64_t index = tile * kTile + i;
        double x = 0;
        if (index < rows.rows && kk < args.k) {
          const int64_t row = index * rows.row_step;
          x = Decode(args.a, row * args.lda + kk, type) * ScaleOfA(args, type, row, kk);
        }
        a[e % kStep][i] = x;
        const int64_t column = first_column + i;
        double y = 0;
        if (column < args.n && kk < args.k) {
          y = Decode(args.b, column * args.ldb + kk, type) * ScaleOfB(args, type, column, kk);
        }
        b[e % kStep][i] = y;
      }
      __syncthreads();  // both tiles are written; all threads read them
      for (int kk = 0; kk < kStep; ++kk) {
        double x[kEach], y[kEach];
        for (int i = 0; i < kEach; ++i) {
          x[i] = a[kk][ty + i * kSide];
          y[i] = b[kk][tx + i * kSide];
        }
        for (int i = 0; i < kEach; ++i) {
          for (int j = 0; j < kEach; ++j) sum[i][j] += x[i] * y[j];
        }
      }
      __syncthreads();  // all have read; the next step may overwrite
    }
    for (int i = 0; i < kEach; ++i) {
      const int64_t index = tile * kTile + ty + i * kSide;
      for (int j = 0; j < kEach; ++j) {
        const int64_t column = first_column + tx + j * kSide;
        if (index < rows.rows && column < args.n) {
          rows.reference[index * args.n + column] = sum[i][j];
        }
      }
    }
  }
}

__device__ double WarpSum(double x) {
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  return x;
}

__global__ void __launch_bounds__(kThreads)
    ErrorsKernel(GemmArgs args, ReferenceRows rows, ErrorSums* sums) {
  const ElementType out = args.out == cuda::OutType::kF16 ? ElementType::kF16 : ElementType::kBF16;
  const int64_t count = rows.rows * args.n;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  ErrorSums mine;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const int64_t row = i / args.n * rows.row_step;
    const double x = Decode(args.d, row * args.ldd + i % args.n, out);
    const double y = rows.reference[i];
    mine.xy += x * y;
    mine.xx += x * x;
    mine.yy += y * y;
    mine.dd += (x - y) * (x - y);
  }
  mine.xy = WarpSum(mine.xy);
  mine.xx = WarpSum(mine.xx);
  mine.yy = WarpSum(mine.yy);
  mine.dd = WarpSum(mine.dd);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(&sums->xy, mine.xy);
    atomicAdd(&sums->xx, mine.xx);
    atomicAdd(&sums->yy, mine.yy);
    atomicAdd(&sums->dd, mine.dd);
  }
}

__global__ void __launch_bounds__(kThreads)
    DifferingKernel(const uint16_t* x, const uint16_t* y, int64_t words,
                    unsigned long long* differing) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  unsigned long long mine = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < words;
       i += step) {
    mine += x[i] != (y == nullptr ? 0xffff : y[i]);
  }
  if (mine != 0) atomicAdd(differing, mine);
}

int GridFor(int64_t work) {
  constexpr int64_t kMaxGrid = 2048;
  const int64_t ctas = (work + kThreads - 1) / kThreads;
  return static_cast<int>(ctas < kMaxGrid ? ctas : kMaxGrid);
}

}  // namespace

cudaError_t ComputeReference(const GemmArgs& args, ElementType type, const ReferenceRows& rows,
                             cudaStream_t stream) {
  if (rows.rows == 0 || args.n == 0) return cudaSuccess;
  const int64_t tiles_m = (rows.rows + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>((args.n + kTile - 1) / kTile),
                  static_cast<unsigned>(tiles_m < kMaxGridY ? tiles_m : kMaxGridY));
  ReferenceKernel<<<grid, kThreads, 0, stream>>>(args, type, rows);
  return cudaGetLastError();
}

cudaError_t AddErrors(const GemmArgs& args, const ReferenceRows& rows, ErrorSums* sums,
                      cudaStream_t stream) {
  if (rows.rows * args.n == 0) return cudaSuccess;
  ErrorsKernel<<<GridFor(rows.rows * args.n), kThreads, 0, stream>>>(args, rows, sums);
  return cudaGetLastError();
}

cudaError_t CountDiffering(const uint16_t* x, const uint16_t* y, int64_t words,
                           unsigned long long* differing, cudaStream_t stream) {
  if (words == 0) return cudaSuccess;
  DifferingKernel<<<GridFor(words), kThreads, 0, stream>>>(x, y, words, differing);
  return cudaGetLastError();
}

}  // namespace gemmd::kernels::bench
