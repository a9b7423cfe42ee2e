// Thread block clusters: PTX ISA 10.x special registers, 9.7.13.4 barrier.cluster, 9.7.9.23 mapa.

#pragma once

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Orders nothing but what fence.mbarrier_init and completed copies already did: a releasing arrive
// waits for all of the thread's memory traffic.
__device__ __forceinline__ void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// The same, and whoever waits for it sees what this thread has written.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// `address` of this CTA's shared memory, in CTA `rank` of the cluster.
__device__ __forceinline__ uint32_t MapToRank(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

// Eight bytes that CTAs of a cluster pass on through shared memory: each is there as a whole, and
// nothing else is ordered by it. The remote address is MapToRank's.
__device__ __forceinline__ void StoreRemote8(uint32_t remote, uint64_t value) {
  asm volatile("st.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(remote), "l"(value)
               : "memory");
}
__device__ __forceinline__ uint64_t LoadFromPeer8(uint32_t address) {
  uint64_t value;
  asm volatile("ld.relaxed.cluster.shared::cta.b64 %0, [%1];"
               : "=l"(value)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ int LoadRemote(uint32_t remote) {
  int value;
  asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
  return value;
}
// What this thread wrote is seen by whoever in the cluster sees what it does next.
__device__ __forceinline__ void FenceCluster() {
  asm volatile("fence.acq_rel.cluster;" ::: "memory");
}

// Four floats to `local` of this CTA's shared memory; or, without waiting, to `remote` of another
// CTA's, where their 16 bytes complete on that CTA's `barrier` (PTX ISA 9.7.9.12 st.async).
__device__ __forceinline__ void StoreToPart4(bool here, uint32_t local, uint32_t remote, float4 v,
                                             uint32_t remote_barrier) {
  asm volatile(
      "{\n"
      ".reg .pred here;\n"
      "setp.ne.u32 here, %0, 0;\n"
      "@here st.shared.v4.f32 [%1], {%3, %4, %5, %6};\n"
      "@!here st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%2], "
      "{%3, %4, %5, %6}, [%7];\n"
      "}" ::"r"(static_cast<uint32_t>(here)),
      "r"(local), "r"(remote), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(remote_barrier)
      : "memory");
}

}  // namespace gemmd::kernels::cuda::ptx
