// Tensor maps that the device makes: PTX ISA 9.7.9.28, "tensormap.replace", and 9.7.13, "fence" and
// "tensormap.cp_fenceproxy".

#pragma once

#include <cuda.h>

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

// Where the map's tensor begins. `map` lies in shared memory, at a multiple of 128.
__device__ __forceinline__ void SetTensorMapAddress(uint32_t map, const void* address) {
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map),
               "l"(address)
               : "memory");
}

// Copies a map out of shared memory, so that who acquires it finds it whole. By a whole warp.
__device__ __forceinline__ void PublishTensorMap(CUtensorMap* target, uint32_t map) {
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
      "[%0], [%1], 128;" ::"l"(target),
      "r"(map)
      : "memory");
}

// Before the first copy by a map that was published behind this kernel's back: the copy engine
// forgets what it knew of that address.
__device__ __forceinline__ void AcquireTensorMap(const CUtensorMap* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

}  // namespace gemmd::kernels::cuda::ptx
