// Copies between a caller's memory and shared memory, by several threads when they are long: one
// core moves 5 to 15 GB/s, a fraction of what a server's memory and PCIe do.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"

namespace gemmd::client {

// What one thread copies at a time.
inline constexpr int64_t kCopyGrainBytes = 512 << 10;

// Threads that copy `bytes` together, the caller's included: as many of `most` as get two grains
// each, and one at least. 0 for `most` stands for half of the machine's cores, no more than 8.
int CopyThreads(int64_t bytes, int most = 0);

// Runs `helper` on threads - 1 new threads, or as many as are to be had, and `caller` on this one;
// back when all are. None outlives the call, so a process may fork between two.
void RunWide(int threads, absl::FunctionRef<void()> helper, absl::FunctionRef<void()> caller);

// memcpy, by CopyThreads(bytes, threads).
void WideCopy(void* target, const void* source, size_t bytes, int threads = 0);

}  // namespace gemmd::client
