// The region's 32-bit words as both sides access them: a plain word of shared memory, atomically.

#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdint>

namespace gemmd::armed {

inline uint32_t Load(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void Store(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
// `to` in the place of `from`; false where another value stands.
inline bool Replace(uint32_t* word, uint32_t from, uint32_t to) {
  return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
inline void Fence() {
#ifdef __SANITIZE_THREAD__  // which knows no fences, but what threads do to one variable
  static int all_fences = 0;
  __atomic_fetch_add(&all_fences, 1, __ATOMIC_SEQ_CST);
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

// Sleeps while the word has `value`, for `most_ns` at most. Between processes.
inline void SleepOn(const uint32_t* word, uint32_t value, int64_t most_ns) {
  const timespec most = {static_cast<time_t>(most_ns / 1000000000), most_ns % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &most, nullptr, 0);
}
inline void WakeSleepers(const uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace gemmd::armed
