// The kernel that hands a small x over: it takes the done word back, copies, and sets the slot's
// gate behind both. On a stream it takes the place of three entries, a copy and two writes. Where x
// is elsewhere or large another one rings alone: a single CTA starts half a microsecond sooner.

#pragma once

#include <cstddef>

namespace gemmd::armed {

// PTX of `gemmd_copy_and_ring(to, from, chunks, gate, done)`, all five of 64 bits: sets the 32-bit
// word at `done` to 0, copies `chunks` times 16 bytes, and then sets the word at `gate` to 1. For a
// grid of one cluster. And of `gemmd_ring`, with the same parameters, which copies nothing: for one
// thread. Each may be launched to overlap the end of the kernel before it.
extern const char kCopyKernelPtx[];
inline constexpr char kCopyKernelName[] = "gemmd_copy_and_ring";
inline constexpr char kRingKernelName[] = "gemmd_ring";

inline constexpr unsigned kCopyCtas = 8;       // the cluster
inline constexpr size_t kCopyChunkBytes = 16;  // both sides are aligned to it
inline constexpr unsigned kChunksAtOnce = 4;   // a thread's, whose loads are under way together
// Larger ones are the driver's: a single cluster would take more than one round.
inline constexpr size_t kMostCopyBytes = size_t{512} << 10;

// A CTA's threads: as few as copy it in one round, since few find room beside other work.
constexpr unsigned CopyThreads(size_t chunks) {
  constexpr unsigned kLeast = 128, kMost = 1024, kWarp = 32;
  const size_t needed = (chunks + kCopyCtas * kChunksAtOnce - 1) / (kCopyCtas * kChunksAtOnce);
  const auto whole = static_cast<unsigned>((needed + kWarp - 1) / kWarp * kWarp);
  return whole < kLeast ? kLeast : whole < kMost ? whole : kMost;
}

}  // namespace gemmd::armed
