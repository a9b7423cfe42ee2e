// Global memory: PTX ISA 9.7.9.12 st; and the clock, 10.27 %globaltimer.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

// One store of 16 bytes or none, by a predicate and not by a branch.
__device__ __forceinline__ void StoreGlobal4If(bool condition, void* target, float4 v) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %0, 0;\n"
      "@p st.global.v4.f32 [%1], {%2, %3, %4, %5};\n"
      "}" ::"r"(static_cast<uint32_t>(condition)),
      "l"(target), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}
// The same with one of l2_policy.cuh's.
__device__ __forceinline__ void StoreGlobal4If(bool condition, void* target, float4 v,
                                               uint64_t policy) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.u32 p, %0, 0;\n"
      "@p st.global.L2::cache_hint.v4.f32 [%1], {%2, %3, %4, %5}, %6;\n"
      "}" ::"r"(static_cast<uint32_t>(condition)),
      "l"(target), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "l"(policy)
      : "memory");
}
// The same of one that is made in any case, and of 4 bytes.
__device__ __forceinline__ void StoreGlobal4(void* target, uint4 v, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(target),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void StoreGlobal(float* target, float v, uint64_t policy) {
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(target), "f"(v), "l"(policy)
               : "memory");
}

// Of a 32-bit word that other processes and hosts read: whoever sees it sees all that this thread
// has seen.
__device__ __forceinline__ void StoreReleaseSystem(uint32_t* target, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(target), "r"(value) : "memory");
}
// Nanoseconds, the same for all processes on the device; in steps of 32 on an H200.
__device__ __forceinline__ uint64_t GlobalTimer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

// The line that holds `source` into L2; nothing waits for it.
__device__ __forceinline__ void PrefetchL2(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(source));
}

}  // namespace gemmd::kernels::cuda::ptx
