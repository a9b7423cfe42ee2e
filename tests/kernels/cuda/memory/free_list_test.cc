#include "kernels/cuda/memory/free_list.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

TEST(FreeListTest, TakesTheSmallestHoleThatFits) {
  FreeList list(1000);
  EXPECT_EQ(list.Take(100), 0);
  EXPECT_EQ(list.Take(300), 100);
  EXPECT_EQ(list.Take(50), 400);
  EXPECT_EQ(list.Take(60), 450);
  list.Give(100, 300);
  list.Give(450, 60);  // joins what is free behind it: 550 bytes
  EXPECT_EQ(list.largest(), 550);
  EXPECT_EQ(list.Take(200), 100);
  EXPECT_EQ(list.Take(200), 450);
  EXPECT_EQ(list.Take(351), std::nullopt);
  EXPECT_EQ(list.Take(350), 650);
}

TEST(FreeListTest, JoinsNeighboursOnBothSides) {
  FreeList list(300);
  for (int64_t at : {0, 100, 200}) EXPECT_EQ(list.Take(100), at);
  EXPECT_EQ(list.largest(), 0);
  list.Give(0, 100);
  list.Give(200, 100);
  EXPECT_EQ(list.largest(), 100);
  EXPECT_FALSE(list.unused());
  list.Give(100, 100);
  EXPECT_TRUE(list.unused());
  EXPECT_EQ(list.Take(300), 0);
}

TEST(FreeListTest, NeverGivesAByteTwice) {
  constexpr int64_t kSize = 4096;
  FreeList list(kSize);
  std::vector<bool> taken(kSize, false);
  std::vector<std::pair<int64_t, int64_t>> pieces;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    if (!pieces.empty() && random() % 2 == 0) {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      const auto [offset, bytes] = pieces.back();
      pieces.pop_back();
      for (int64_t at = offset; at < offset + bytes; ++at) taken[at] = false;
      list.Give(offset, bytes);
      continue;
    }
    const int64_t bytes = 1 + random() % 500;
    const bool fits = list.largest() >= bytes;
    const std::optional<int64_t> offset = list.Take(bytes);
    ASSERT_EQ(offset.has_value(), fits);
    if (!offset) continue;
    for (int64_t at = *offset; at < *offset + bytes; ++at) {
      ASSERT_FALSE(taken[at]) << at;
      taken[at] = true;
    }
    pieces.emplace_back(*offset, bytes);
  }
  for (const auto& [offset, bytes] : pieces) list.Give(offset, bytes);
  EXPECT_TRUE(list.unused());
}

}  // namespace
}  // namespace gemmd::kernels::cuda
