#include "server/kept_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <latch>
#include <system_error>
#include <thread>
#include <vector>

namespace gemmd::server {
namespace {

constexpr int kKeptBytes = 64 << 20;
constexpr int kArenas = 16;

// malloc trims the free end of an arena when a block of at least 64 KiB is freed in it.
void FreeABlock() {
  void* volatile block = std::malloc(128 << 10);
  std::free(block);
}

// A thread that begins is given an arena that has no thread, else a new one, else the next of all:
// of twice as many as there may be, none of which ends before the last has begun, each arena has
// one.
void FreeABlockInEveryArena() {
  std::latch all_begun(1);
  std::vector<std::thread> threads;
  threads.reserve(2 * kArenas);
  try {
    for (int i = 0; i < 2 * kArenas; ++i) {
      std::latch freed(1);
      threads.emplace_back([&] {
        FreeABlock();
        freed.count_down();
        all_begun.wait();
      });
      freed.wait();
    }
  } catch (const std::system_error&) {
    // No room for a thread: some arenas keep their ends until the next time.
  }
  all_begun.count_down();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_ARENA_MAX, kArenas);
}

void GiveBackFreedMemory() {
  malloc_trim(0);
  // That leaves the free end of every arena but the first one's, up to 64 MiB each.
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  FreeABlockInEveryArena();
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
}

}  // namespace gemmd::server
