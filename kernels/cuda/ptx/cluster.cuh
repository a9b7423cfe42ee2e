// Thread block clusters: PTX ISA 10.x special registers, 9.7.13.4 barrier.cluster, 9.7.9.23 mapa.

#ifndef GEMMD_KERNELS_CUDA_PTX_CLUSTER_CUH_
#define GEMMD_KERNELS_CUDA_PTX_CLUSTER_CUH_

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Four floats at `address` of the shared memory of CTA `rank`.
__device__ __forceinline__ float4 LoadRemote4(uint32_t address, uint32_t rank) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

}  // namespace gemmd::kernels::cuda::ptx

#endif  // GEMMD_KERNELS_CUDA_PTX_CLUSTER_CUH_
