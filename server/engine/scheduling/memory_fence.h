// Fences that the thread sanitizer understands: it knows no fence by itself (GCC refuses them), but
// orders threads by what they do to one variable.

#pragma once

#include <atomic>

namespace gemmd::server {

inline void MemoryFence(std::memory_order order = std::memory_order_seq_cst) {
#ifdef __SANITIZE_THREAD__
  static std::atomic<int> all_fences{0};
  (void)order;
  all_fences.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(order);
#endif
}

}  // namespace gemmd::server
