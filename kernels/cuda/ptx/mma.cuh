// A warp's matrix multiplication: PTX ISA, "Warp-level matrix instructions: mma".
//
// Fragments of one 16x8 result with 32 bytes of k (16 two-byte or 32 one-byte elements):
//   a[0..3]    rows lane/4 and lane/4 + 8, then the same rows 16 bytes on along k
//   b[0..1]    column lane/4, then the same 16 bytes on along k
//   acc[0..3]  row lane/4, columns 2*(lane%4) and the next; then the same of row lane/4 + 8

#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/ldmatrix.cuh"

namespace gemmd::kernels::cuda::ptx {

__device__ __forceinline__ void MmaF16(float* acc, const uint32_t* a, const uint32_t* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void MmaBf16(float* acc, const uint32_t* a, const uint32_t* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void MmaS8(int* acc, const uint32_t* a, const uint32_t* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace gemmd::kernels::cuda::ptx
