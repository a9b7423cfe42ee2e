#include "kernels/cuda/run/graph_cache.h"

#include "gtest/gtest.h"
#include "kernels/cuda/memory/returned.h"

namespace gemmd::kernels::cuda {
namespace {

class NoProgram final : public Program {
 public:
  absl::Span<const Step> steps() const override { return {}; }
  double estimated_seconds() const override { return 0; }
};

class GraphCacheTest : public testing::Test {
 protected:
  static GraphKey Key(uint64_t program, uintptr_t address = 1) {
    return {program, {reinterpret_cast<const std::byte*>(address << 20)}};
  }
  // Without a device there is no graph to cache; what surrounds one is the same.
  std::shared_ptr<CachedGraph> Add(const GraphKey& key, int64_t io_bytes = 0) {
    auto graph = std::make_shared<CachedGraph>();
    graph->io_bytes = io_bytes;
    EXPECT_TRUE(cache_.MakeRoom(10, io_bytes));
    cache_.Add(key, program_, graph);
    return graph;
  }
  void Launch(int64_t times) {
    for (int64_t i = 0; i < times; ++i) cache_.Find(Key(1 << 20));
  }

  std::shared_ptr<const Program> program_ = std::make_shared<NoProgram>();
  GraphCache cache_;
};

TEST_F(GraphCacheTest, TellsProgramsAndMemoryApart) {
  const auto first = Add(Key(1, 1));
  const auto second = Add(Key(1, 2));
  const auto other = Add(Key(2, 1));
  EXPECT_EQ(cache_.Find(Key(1, 1)), first);
  EXPECT_EQ(cache_.Find(Key(1, 2)), second);
  EXPECT_EQ(cache_.Find(Key(2, 1)), other);
  EXPECT_EQ(cache_.Find(Key(2, 2)), nullptr);
  GraphKey longer = Key(1, 1);
  longer.addresses.push_back(nullptr);
  EXPECT_EQ(cache_.Find(longer), nullptr);
}

TEST_F(GraphCacheTest, TellsTheWordsThatRunsSetApart) {
  std::byte word{}, other_word{};
  GraphKey key = Key(1), other = Key(1);
  key.signal = &word;
  other.signal = &other_word;
  const auto one = Add(key);
  const auto two = Add(other);
  EXPECT_EQ(cache_.Find(key), one);
  EXPECT_EQ(cache_.Find(other), two);
  EXPECT_EQ(cache_.Find(Key(1)), nullptr);
}

// Their copies would still be the old memory's.
TEST_F(GraphCacheTest, GraphsWithCopiesGoWhenMemoryDoes) {
  GraphKey key = Key(1);
  key.returns = MemoryReturns();
  const auto kernels = Add(Key(1));
  const auto copies = Add(key);
  EXPECT_EQ(cache_.Find(key), copies);
  CountMemoryReturn();
  key.returns = MemoryReturns();
  EXPECT_EQ(cache_.Find(key), nullptr);
  EXPECT_EQ(cache_.Find(Key(1)), kernels);
  const auto again = Add(key);
  EXPECT_EQ(cache_.size(), 2);  // room was made: the old one is forgotten
  EXPECT_EQ(cache_.Find(key), again);
}

TEST_F(GraphCacheTest, GivesInlineBytesToOneRunAtATime) {
  const auto one = Add(Key(1), 100);
  EXPECT_EQ(cache_.Find(Key(1)), one);
  EXPECT_EQ(cache_.Find(Key(1)), nullptr);
  const auto two = Add(Key(1), 100);
  EXPECT_EQ(cache_.Find(Key(1)), two);
  one->busy = false;
  EXPECT_EQ(cache_.Find(Key(1)), one);
  EXPECT_EQ(cache_.Find(Key(1)), nullptr);
  const auto plain = Add(Key(2));  // runs of it need nothing of their own
  EXPECT_EQ(cache_.Find(Key(2)), plain);
  EXPECT_EQ(cache_.Find(Key(2)), plain);
}

TEST_F(GraphCacheTest, GivesAGraphThatKeepsItsOwnTimeToOneRunAtATime) {
  const auto add = [&] {
    const auto graph = Add(Key(1));
    graph->stamps = std::make_shared<RunStamps>();
    return graph;
  };
  const auto one = add();
  EXPECT_EQ(cache_.Find(Key(1)), one);
  EXPECT_EQ(cache_.Find(Key(1)), nullptr);
  const auto two = add();
  EXPECT_EQ(cache_.Find(Key(1)), two);
  one->busy = false;
  EXPECT_EQ(cache_.Find(Key(1)), one);
}

TEST_F(GraphCacheTest, ForgetsWhatWasUnusedLongest) {
  for (int i = 0; i < GraphCache::kMaxGraphs; ++i) Add(Key(i));
  Launch(GraphCache::kYoung);
  EXPECT_NE(cache_.Find(Key(0)), nullptr);
  Add(Key(1000));
  EXPECT_EQ(cache_.size(), GraphCache::kMaxGraphs);
  EXPECT_NE(cache_.Find(Key(0)), nullptr);
  EXPECT_EQ(cache_.Find(Key(1)), nullptr);
  EXPECT_NE(cache_.Find(Key(1000)), nullptr);
}

TEST_F(GraphCacheTest, KeepsWhatTakesTurnsWithMoreThanThereIsRoomFor) {
  for (int i = 0; i < GraphCache::kMaxGraphs; ++i) Add(Key(i));
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < GraphCache::kMaxGraphs; ++i) EXPECT_NE(cache_.Find(Key(i)), nullptr);
    EXPECT_EQ(cache_.Find(Key(GraphCache::kMaxGraphs)), nullptr);
    EXPECT_FALSE(cache_.MakeRoom(10, 0));
  }
}

TEST_F(GraphCacheTest, ForgetsProgramsThatAreGone) {
  Add(Key(1));
  program_ = std::make_shared<NoProgram>();
  Add(Key(2));
  EXPECT_EQ(cache_.size(), 1);
  EXPECT_EQ(cache_.Find(Key(1)), nullptr);
}

TEST_F(GraphCacheTest, WhatIsForgottenStaysWithItsRuns) {
  const auto running = Add(Key(1));
  program_ = std::make_shared<NoProgram>();
  EXPECT_TRUE(cache_.MakeRoom(1, 0));
  EXPECT_EQ(running.use_count(), 1);
}

TEST_F(GraphCacheTest, BoundsPinnedMemoryAndNodes) {
  EXPECT_FALSE(cache_.MakeRoom(1, GraphCache::kMaxIoBytes + 1));
  EXPECT_FALSE(cache_.MakeRoom(GraphCache::kMaxNodes + 1, 0));
  Add(Key(1), GraphCache::kMaxIoBytes);
  EXPECT_FALSE(cache_.MakeRoom(1, 1));
  EXPECT_TRUE(cache_.MakeRoom(1, 0));
  Launch(GraphCache::kYoung);
  EXPECT_TRUE(cache_.MakeRoom(1, 1));
  EXPECT_EQ(cache_.size(), 0);
}

TEST_F(GraphCacheTest, ARefusalStandsInForTheGraphs) {
  Add(Key(1), 100);
  Add(Key(1), 100);
  cache_.Refuse(Key(1), program_);
  EXPECT_EQ(cache_.size(), 1);
  for (int i = 0; i < 2; ++i) {
    const auto found = cache_.Find(Key(1));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->graph, nullptr);
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
