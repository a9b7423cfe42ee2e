// The ladder: one matmul in eleven kernels, each one step's idea and nothing else. Read in order
// they teach the skeleton (sm90/sm90_fp8_gemm.cuh); docs/ladder.md walks through them. Plain data:
// shared by ladder.cu, which has the kernels, and ladder.cc, which makes their arguments.

#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/ops/any_gemm.h"

namespace gemmd::kernels::cuda::ladder {

// D[m, n] = alpha * A[m, k] . B[n, k]^T, rows of k and n contiguous, all extents at least 1.
// Strides between rows are in elements.
struct Matmul {
  int m = 0;
  int n = 0;
  int k = 0;
  float alpha = 1.0f;
  const void* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  void* d = nullptr;
  int64_t ldd = 0;
  ScaleView a_scales;  // of the FP8 rung: one a row and 128 of k,
  ScaleView b_scales;  // and one for 128 rows and 128 of k
};

// A, B and D as the copy engine sees them, from step 4 on. A box of A or B is 128 bytes of k in the
// 128-byte swizzle by the rung's rows; one of D is 64 columns in that swizzle by 128 rows.
struct Maps {
  CUtensorMap a;
  CUtensorMap b;
  CUtensorMap d;
};

struct Rung {
  const char* name;  // "sm90_ladder_01_one_tile"
  const char* idea;  // for people, in few words
  // What it takes. Until step 3 extents are whole tiles of 128 x 128 x 64.
  bool one_tile;    // m = n = 128
  bool one_k_tile;  // k = 64
  bool uses_tma;    // rows and columns beyond the matrix are zeros: any m, n and k
  bool is_fp8;      // E4M3 with block scales into BF16; else FP16 into FP16
  int a_box_rows;   // rows of A that one copy brings
  double rate;      // FLOP/s, roughly, of a large matmul on an H200: the estimate's
  cudaError_t (*launch)(const Matmul& matmul, const Maps& maps, cudaStream_t stream);
};

inline constexpr int kTileRows = 128;  // of A and of B that a tile in shared memory has
inline constexpr int kTileBytes = 128 * kTileRows;
inline constexpr int kNumRungs = 11;
extern const Rung kRungs[kNumRungs];

}  // namespace gemmd::kernels::cuda::ladder
