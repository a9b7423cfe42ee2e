// Memory that stays with the process, as gemmd has it.

#pragma once

#include <malloc.h>

namespace gemmd::bench {

// For both sides of an echo, which is no floor otherwise: of half a megabyte each way some 80 pages
// a call are given back to the kernel and faulted in again, in one process and not in the next, by
// which of malloc's arenas its threads have.
inline void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
}

}  // namespace gemmd::bench
