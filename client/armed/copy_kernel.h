// The kernel that hands a small x over: it copies, and sets the slot's gate behind that. On a
// stream it takes the place of two entries, a copy and a write.

#ifndef GEMMD_CLIENT_ARMED_COPY_KERNEL_H_
#define GEMMD_CLIENT_ARMED_COPY_KERNEL_H_

#include <cstddef>

namespace gemmd::armed {

// PTX of `gemmd_copy_and_ring(to, from, chunks, gate)`, all four of 64 bits: copies `chunks` times
// 16 bytes, and then sets the 32-bit word at `gate` to 1. For a grid of one cluster.
extern const char kCopyKernelPtx[];
inline constexpr char kCopyKernelName[] = "gemmd_copy_and_ring";

inline constexpr unsigned kCopyCtas = 8;       // the cluster
inline constexpr unsigned kCopyThreads = 128;  // few: they find room beside other work
inline constexpr size_t kCopyChunkBytes = 16;  // both sides are aligned to it
// Larger ones are the driver's: a single cluster would take longer.
inline constexpr size_t kMostCopyBytes = size_t{512} << 10;

}  // namespace gemmd::armed

#endif  // GEMMD_CLIENT_ARMED_COPY_KERNEL_H_
