// Asynchronous copies: PTX ISA 9.7.9.25, "Data Movement and Conversion Instructions: Asynchronous
// copy" (cp.async, cp.async.bulk, cp.async.bulk.tensor).

#pragma once

#include <cuda.h>

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Bytes into shared memory, all three a multiple of 16; they complete on `barrier`.
__device__ __forceinline__ void BulkLoad(uint32_t barrier, uint32_t target, const void* source,
                                         uint32_t bytes, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(target),
      "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// A box of a 4-d tensor into shared memory; its bytes complete on `barrier`.
__device__ __forceinline__ void TensorLoad(const CUtensorMap* map, uint32_t barrier,
                                           uint32_t target, int x, int y, int z, int w,
                                           uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(target),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(policy)
      : "memory");
}

// The same into every CTA of the cluster whose bit is set, at the same place of its shared memory
// and on its own barrier.
__device__ __forceinline__ void TensorLoadMulticast(const CUtensorMap* map, uint32_t barrier,
                                                    uint32_t target, int x, int y, int z, int w,
                                                    uint16_t ctas, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(
          target),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"(ctas), "l"(policy)
      : "memory");
}

// A box of shared memory to a 4-d tensor, in this thread's current group of stores. What lies
// outside the tensor is left out.
__device__ __forceinline__ void TensorStore(const CUtensorMap* map, uint32_t source, int x, int y,
                                            int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
          "l"(map),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void TensorStoreCommit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until this thread's stores have read shared memory.
__device__ __forceinline__ void TensorStoreWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Until they are done.
__device__ __forceinline__ void TensorStoreWait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// 4 bytes, by the ordinary load path.
__device__ __forceinline__ void CpAsync4(uint32_t target, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(target), "l"(source) : "memory");
}
// Until this thread's have come.
__device__ __forceinline__ void CpAsyncWait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace gemmd::kernels::cuda::ptx
