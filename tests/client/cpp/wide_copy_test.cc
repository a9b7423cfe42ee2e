#include "client/cpp/internal/transfers/wide_copy.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace gemmd::client {
namespace {

// Every byte once, none beside them, however the parts fall.
TEST(WideCopyTest, CopiesAllAndNothingElse) {
  constexpr size_t kMiB = 1 << 20;
  constexpr size_t kGuard = 7;  // also puts the target where nothing is aligned
  constexpr uint8_t kUntouched = 0xa5;
  std::vector<uint8_t> source(5 * kMiB + 129);
  uint32_t state = 1;
  for (uint8_t& byte : source) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{63}, kMiB - 1, 2 * kMiB - 1, 2 * kMiB,
                       3 * kMiB + 17, 4 * kMiB + 1, source.size()}) {
    for (int threads : {-1, 0, 1, 2, 3, 4, 9}) {
      std::vector<uint8_t> target(bytes + 2 * kGuard, kUntouched);
      WideCopy(target.data() + kGuard, source.data(), bytes, threads);
      EXPECT_TRUE(std::equal(source.begin(), source.begin() + bytes, target.begin() + kGuard))
          << bytes << " bytes by " << threads;
      for (size_t i = 0; i < kGuard; ++i) {
        EXPECT_EQ(target[i], kUntouched) << bytes << " bytes by " << threads;
        EXPECT_EQ(target[kGuard + bytes + i], kUntouched) << bytes << " bytes by " << threads;
      }
    }
  }
}

TEST(WideCopyTest, TakesAThreadAtLeastAndEightUnlessMoreAreAllowed) {
  constexpr int64_t kLong = int64_t{1} << 40;
  EXPECT_GE(CopyThreads(kLong), 1);
  EXPECT_LE(CopyThreads(kLong), 8);
  EXPECT_EQ(CopyThreads(kLong, 9), 9);
  EXPECT_EQ(CopyThreads(0, 9), 1);
  EXPECT_EQ(CopyThreads(6 * kCopyGrainBytes - 1, 9), 2);
}

}  // namespace
}  // namespace gemmd::client
