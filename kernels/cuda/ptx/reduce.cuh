// Reductions by the copy engine: PTX ISA 9.7.9.27.5, cp.reduce.async.bulk.tensor.

#pragma once

#include <cuda.h>

#include <cstdint>

namespace gemmd::kernels::cuda::ptx {

// A box of shared memory added to a 4-d tensor, in this thread's current group of stores. What lies
// outside the tensor is left out.
__device__ __forceinline__ void TensorAdd(const CUtensorMap* map, uint32_t source, int x, int y,
                                          int z, int w) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
      "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(source), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

}  // namespace gemmd::kernels::cuda::ptx
