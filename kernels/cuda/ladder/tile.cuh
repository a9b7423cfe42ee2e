// What all rungs share: a tile of 128 x 128 of D, multiplied by one warpgroup from tiles of A and B
// that lie in shared memory as WGMMA reads them.
//
// A tile of A or B is 128 rows of 128 bytes: 64 of k in FP16, 128 in FP8. Units of 16 bytes of a
// row change places by the row's number (the 128-byte swizzle), so that neither a column of units
// nor a row of them falls into the same banks:
//
//   row 0 | 0 1 2 3 4 5 6 7      row 1 | 1 0 3 2 5 4 7 6      row 2 | 2 3 0 1 6 7 4 5  ...

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/ladder/rung.h"
#include "kernels/cuda/ptx/copy.cuh"
#include "kernels/cuda/ptx/mbarrier.cuh"
#include "kernels/cuda/ptx/shared.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/ptx/wgmma_f16.cuh"

namespace gemmd::kernels::cuda::ladder {

inline constexpr int kTileK = 64;                  // of k, FP16
inline constexpr int kThreads = 128;               // one warpgroup
inline constexpr int kHalfBytes = kTileBytes / 2;  // 64 rows: what one WGMMA reads of A

// This thread's warp, by a shuffle: then ptxas knows that a warp's threads branch by it as one, and
// keeps what they compute alike in uniform registers, from which WGMMA and the copy engine read.
__device__ __forceinline__ int WarpIndex() {
  return __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
}

// Sums of two times 64 rows by 128 columns, by ptx/wgmma.cuh's map of threads to elements.
using Sums = float[2][64];

__device__ __forceinline__ int CeilDiv(int x, int y) { return (x + y - 1) / y; }

// Where the 16 bytes `unit` of a tile's `row` lie.
__device__ __forceinline__ uint32_t Swizzled(int row, int unit) {
  return row * 128 + (unit ^ row % 8) * 16;
}

// The first byte of dynamic shared memory at which a swizzled tile may start.
__device__ __forceinline__ uint32_t SharedBase() {
  extern __shared__ uint8_t shared[];
  return (ptx::SmemAddress(shared) + 1023) / 1024 * 1024;
}
inline constexpr int kAlignBytes = 1024;

// sums += A tile . B tile^T, queued: it is done when ptx::WgmmaWait says so.
__device__ __forceinline__ void Multiply(Sums& sums, uint32_t a, uint32_t b, bool accumulate) {
  ptx::WgmmaFence();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // 16 of k: 32 bytes of each row
      ptx::WgmmaF16N128(sums[half], ptx::KMajorDescriptor((a + half * kHalfBytes + i * 32) / 16),
                        ptx::KMajorDescriptor((b + i * 32) / 16), accumulate || i > 0);
    }
  }
  ptx::WgmmaCommit();
}

// Until at most kPending of the Multiply before are unfinished. After 0 the sums may be read.
template <int kPending>
__device__ __forceinline__ void WaitForSums(Sums& sums) {
  ptx::WgmmaWait<kPending>();
  if constexpr (kPending == 0) {
    ptx::Pin(sums[0]);
    ptx::Pin(sums[1]);
  }
}

__device__ __forceinline__ uint32_t Pack(__half*, float left, float right) {
  const __half2 pair = __floats2half2_rn(left, right);
  return reinterpret_cast<const uint32_t&>(pair);
}
__device__ __forceinline__ uint32_t Pack(__nv_bfloat16*, float left, float right) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(left, right);
  return reinterpret_cast<const uint32_t&>(pair);
}

// The tile to D at (row, col), through `box` of shared memory and the copy engine, which leaves out
// what lies beyond D. Half the columns at a time; the second half is still on its way when this
// returns. `barrier` is the warpgroup's own, 1 to 15.
template <class Out = __half>
__device__ __forceinline__ void StoreTile(const CUtensorMap* d, uint32_t box, const Sums& sums,
                                          float alpha, int row, int col, int barrier) {
  const int thread = threadIdx.x % kThreads;
  const int warp = thread / 32;
  const int lane = thread % 32;
  Out* const type = nullptr;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    if (thread == 0) ptx::TensorStoreWaitRead();
    ptx::NamedBarrier(barrier, kThreads);  // the box is free
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int unit = 0; unit < 8; unit += 2) {  // 8 columns each
        const float* s = sums[half] + side * 32 + unit * 4;
        ptx::StMatrix4(
            box + Swizzled(half * 64 + warp * 16 + lane % 16, unit + lane / 16),
            Pack(type, s[0] * alpha, s[1] * alpha), Pack(type, s[2] * alpha, s[3] * alpha),
            Pack(type, s[4] * alpha, s[5] * alpha), Pack(type, s[6] * alpha, s[7] * alpha));
      }
    }
    ptx::FenceProxyAsync();
    ptx::NamedBarrier(barrier, kThreads);  // the box is full
    if (thread == 0) {
      ptx::TensorStore(d, box, col + side * 64, row, 0, 0);
      ptx::TensorStoreCommit();
    }
  }
}

}  // namespace gemmd::kernels::cuda::ladder
