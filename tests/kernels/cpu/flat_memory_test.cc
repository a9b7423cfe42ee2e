// What a process keeps of the memory that was freed.

#include <unistd.h>

#include <cstring>
#include <fstream>

#include "gtest/gtest.h"
#include "kernels/cpu/memory.h"

namespace gemmd::kernels::cpu {
namespace {

constexpr int64_t kLimit = 1 << 30;

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(DeviceMemoryTest, StaysFlatOverManyCycles) {
  Budget budget("cpu:0", kLimit);
  int64_t before = 0;
  for (int i = 0; i < 100000; ++i) {
    const int64_t size = 64 << (i % 12);  // 64 B to 128 KiB: both ways of allocating
    auto memory = AllocateMemory(budget, size, MemoryKind::kDevice);
    ASSERT_TRUE(memory.ok());
    (*memory)->address()[size - 1] = std::byte{1};
    if (i == 1000) before = ResidentBytes();
  }
  EXPECT_LT(ResidentBytes() - before, 4 << 20);
}

TEST(DeviceMemoryTest, GivesLargeOnesBackToTheSystem) {
  Budget budget("cpu:0", kLimit);
  const int64_t before = ResidentBytes();
  {
    auto memory = AllocateMemory(budget, 256 << 20, MemoryKind::kDevice);
    ASSERT_TRUE(memory.ok());
    std::memset((*memory)->address(), 1, 256 << 20);
    EXPECT_GT(ResidentBytes() - before, 200 << 20);
  }
  EXPECT_LT(ResidentBytes() - before, 16 << 20);
}

}  // namespace
}  // namespace gemmd::kernels::cpu
