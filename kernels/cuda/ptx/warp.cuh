// Warp and warpgroup instructions: setmaxnreg (PTX ISA 9.7.19.5), elect.sync (9.7.13.13), named
// barriers (9.7.13.1), stmatrix (9.7.14.5.16).

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

template <int kRegisters>
__device__ __forceinline__ void SetMaxRegistersUp() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void SetMaxRegistersDown() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// True in one lane of the warp, which is whole here. ptxas knows that it is one, and then issues
// what only one thread may (the copy engine's instructions) without a loop over the lanes.
__device__ __forceinline__ bool ElectOne() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

// Named barrier `id` (1..15) among `threads` threads.
__device__ __forceinline__ void NamedBarrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives there without waiting.
__device__ __forceinline__ void NamedArrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Two 8x8 matrices of 2-byte elements. Lanes 0..7 give the row addresses of the first, 8..15 of
// the second; each lane holds two neighbours of row lane/4 in each register.
__device__ __forceinline__ void StMatrix2(uint32_t address, uint32_t first, uint32_t second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(first), "r"(second)
               : "memory");
}

// Four, their row addresses from lanes 8i to 8i+7.
__device__ __forceinline__ void StMatrix4(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                          uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Two, transposed: the two elements land in neighbouring rows.
__device__ __forceinline__ void StMatrix2Transposed(uint32_t address, uint32_t first,
                                                    uint32_t second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(first), "r"(second)
               : "memory");
}

}  // namespace gemmd::kernels::cuda::ptx
