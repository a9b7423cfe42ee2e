#include "server/kept_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace gemmd::server {
namespace {

int64_t ResidentMiB() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE) >> 20;
}

// Whichever arenas its threads had, and though the threads are still there.
TEST(KeptMemoryTest, ComesBackFromEveryArena) {
  KeepFreedMemory();
  constexpr int kThreads = 4, kBlocks = 45;
  const int64_t before = ResidentMiB();
  std::latch freed(kThreads), looked(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      std::vector<std::unique_ptr<char[]>> blocks;
      for (int j = 0; j < kBlocks; ++j) {
        blocks.push_back(std::make_unique<char[]>(1 << 20));
        std::memset(blocks.back().get(), 1, 1 << 20);
      }
      blocks.clear();
      freed.count_down();
      looked.wait();
    });
  }
  freed.wait();
  EXPECT_GE(ResidentMiB() - before, kThreads * kBlocks * 9 / 10);  // malloc keeps it
  GiveBackFreedMemory();
  EXPECT_LE(ResidentMiB() - before, 16);
  looked.count_down();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd::server
