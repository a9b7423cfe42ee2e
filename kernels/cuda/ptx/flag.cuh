// A word in global memory by which one thread tells another that data is there: PTX ISA 9.7.9.12
// st.release, 9.7.9.9 ld.acquire. What other threads of the CTA wrote counts if a barrier stands in
// front.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

__device__ __forceinline__ void SetFlag(uint32_t* flag) {
  asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}

// Waits until it is set, and clears it.
__device__ __forceinline__ void TakeFlag(uint32_t* flag) {
  uint32_t set;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
  } while (set == 0);
  asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(flag) : "memory");
}

}  // namespace gemmd::kernels::cuda::ptx
