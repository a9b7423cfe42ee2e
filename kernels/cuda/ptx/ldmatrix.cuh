// ldmatrix (PTX ISA 9.7.14.5.15): 16-bit numbers from shared memory to where WGMMA has its sums.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

// Four 8x8 matrices of 2-byte elements, their row addresses from lanes 8i to 8i+7. Each lane takes
// two neighbours of row lane/4 of each.
__device__ __forceinline__ void LdMatrix4(uint32_t address, uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// The same with rows and columns exchanged: a lane has two neighbours of a column.
__device__ __forceinline__ void LdMatrix4Transposed(uint32_t address, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

// Two, transposed: each lane takes two neighbours of column lane/4 of each. Row addresses from
// lanes 0 to 15.
__device__ __forceinline__ void LdMatrix2Transposed(uint32_t address, uint32_t& first,
                                                    uint32_t& second) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(first), "=r"(second)
               : "r"(address)
               : "memory");
}

}  // namespace gemmd::kernels::cuda::ptx
