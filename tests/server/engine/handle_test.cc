#include "server/engine/sessions/handle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"

namespace gemmd::server {
namespace {

TEST(HandleTest, NewHandlesDifferAlsoAcrossThreads) {
  constexpr int kThreads = 4;
  constexpr int kEach = 10000;  // many refills of a thread's pool
  std::vector<std::vector<Handle>> drawn(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : drawn) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < kEach; ++i) mine.push_back(NewHandle());
    });
  }
  for (auto& thread : threads) thread.join();
  absl::flat_hash_set<Handle> all;
  for (const auto& mine : drawn) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
}

TEST(HandleTest, EveryBitIsRandom) {
  uint64_t high_ones = 0, low_ones = 0, high_zeros = 0, low_zeros = 0;
  for (int i = 0; i < 1000; ++i) {  // a fair bit stays the same with probability 2^-999
    const Handle handle = NewHandle();
    high_ones |= handle.high;
    low_ones |= handle.low;
    high_zeros |= ~handle.high;
    low_zeros |= ~handle.low;
  }
  EXPECT_EQ(high_ones & low_ones & high_zeros & low_zeros, ~uint64_t{0});
}

TEST(HandleTest, BytesRoundTrip) {
  const Handle handle = NewHandle();
  const std::string bytes = ToBytes(handle);
  ASSERT_EQ(bytes.size(), kHandleBytes);
  EXPECT_EQ(HandleFromBytes(bytes), handle);
}

TEST(HandleTest, OtherSizesAreNoHandle) {
  for (const size_t size : {0, 1, 15, 17, 32}) {
    EXPECT_EQ(HandleFromBytes(std::string(size, 'x')), std::nullopt) << size;
  }
}

TEST(HandleTest, RedactedShowsTheFirstEightDigitsOnly) {
  const Handle handle = {0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(Redacted(handle), "01234567");
  EXPECT_EQ(absl::BytesToHexString(ToBytes(handle)), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Redacted({0x0000000aull << 32, 1}), "0000000a");
}

}  // namespace
}  // namespace gemmd::server
