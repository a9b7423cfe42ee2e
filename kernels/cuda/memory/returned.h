// How often this process gave memory back to CUDA: unmapped another process's, unpinned the host's,
// freed the device's.
//
// A copy in a graph holds on to the allocation that its addresses were in when it was recorded. If
// other memory comes to lie there the address is right and the copy is not: launching such a graph
// fails, and under MPS the GPU faults and takes every client with it. Kernels name addresses alone.

#pragma once

#include <atomic>
#include <cstdint>

namespace gemmd::kernels::cuda {

// Never 0.
inline std::atomic<uint64_t>& MemoryReturns() {
  static std::atomic<uint64_t> returns{1};
  return returns;
}

// Before it goes, so that nothing is recorded on what comes after it under the old number.
inline void CountMemoryReturn() { MemoryReturns().fetch_add(1, std::memory_order_relaxed); }

}  // namespace gemmd::kernels::cuda
