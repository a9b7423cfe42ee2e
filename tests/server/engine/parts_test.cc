// Where a program of several lanes is cut, and which part waits for which.

#include "server/engine/scheduling/parts.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::server {
namespace {

using kernels::CopyOp;
using kernels::FillOp;
using kernels::Op;
using kernels::TensorRef;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Four floats of a slot, from the `at`-th four on.
TensorRef At(int slot, int at = 0) {
  TensorRef tensor;
  tensor.slot = slot;
  tensor.offset_bytes = 16 * at;
  tensor.shape = kernels::MakeDims({4});
  tensor.strides = kernels::MakeDims({1});
  return tensor;
}

TEST(PartsTest, WhatSharesNothingIsOnePartALane) {
  const std::vector<Op> ops = {FillOp{At(0)}, FillOp{At(1)}, FillOp{At(0)}, FillOp{At(1)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {0, 1, 0, 1});
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_THAT(parts[0].ops, ElementsAre(0, 2));
  EXPECT_THAT(parts[1].ops, ElementsAre(1, 3));
  EXPECT_THAT(parts[0].after, IsEmpty());
  EXPECT_THAT(parts[1].after, IsEmpty());
}

// What the other lane needs comes first, and it does not wait for the rest.
TEST(PartsTest, APartEndsWithWhatAnotherLaneWaitsFor) {
  const std::vector<Op> ops = {FillOp{At(0)}, FillOp{At(2)}, CopyOp{At(0), At(1)}, FillOp{At(1)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {0, 0, 1, 1});
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_THAT(parts[0].ops, ElementsAre(0));
  EXPECT_THAT(parts[1].ops, ElementsAre(1));
  EXPECT_THAT(parts[2].ops, ElementsAre(2, 3));
  EXPECT_THAT(parts[2].after, ElementsAre(0));
}

TEST(PartsTest, APartBeginsWithWhatWaits) {
  const std::vector<Op> ops = {FillOp{At(0)}, FillOp{At(1)}, FillOp{At(3)}, CopyOp{At(0), At(1)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {0, 1, 1, 1});
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_THAT(parts[1].ops, ElementsAre(1, 2));
  EXPECT_THAT(parts[1].after, IsEmpty());
  EXPECT_THAT(parts[2].ops, ElementsAre(3));
  EXPECT_THAT(parts[2].after, ElementsAre(0));
}

TEST(PartsTest, AReadIsWaitedForByWhoeverWritesOverIt) {
  const std::vector<Op> ops = {CopyOp{At(0), At(1)}, FillOp{At(0)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {1, 0});
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_THAT(parts[1].after, ElementsAre(0));
}

TEST(PartsTest, TwoReadersDoNotWaitForEachOther) {
  const std::vector<Op> ops = {CopyOp{At(0), At(1)}, CopyOp{At(0), At(2)}};
  EXPECT_THAT(CutIntoParts(ops, {0, 1})[1].after, IsEmpty());
}

TEST(PartsTest, BytesOfOneBufferAreToldApart) {
  const std::vector<Op> ops = {FillOp{At(0, 0)}, FillOp{At(0, 1)}, CopyOp{At(0, 1), At(1)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {0, 1, 1});
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_THAT(parts[1].after, IsEmpty());
}

TEST(PartsTest, WhatWasWaitedForOnceIsNotWaitedForAgain) {
  const std::vector<Op> ops = {FillOp{At(0)}, CopyOp{At(0), At(1)}, CopyOp{At(0), At(2)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {0, 1, 1});
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_THAT(parts[1].ops, ElementsAre(1, 2));
}

bool Conflict(const Op& x, const Op& y) {
  bool conflict = false;
  kernels::ForEachTensor(x, [&](const TensorRef& a, kernels::Access of_a) {
    kernels::ForEachTensor(y, [&](const TensorRef& b, kernels::Access of_b) {
      const bool overlap = a.slot == b.slot && std::abs(a.offset_bytes - b.offset_bytes) < 16;
      conflict |= overlap && (of_a == kernels::Access::kWrite || of_b == kernels::Access::kWrite);
    });
  });
  return conflict;
}

// The parts that are surely over when `part` begins.
std::set<int> Before(const std::vector<OpRun>& parts, int part) {
  std::set<int> before;
  std::vector<int> look = {part};
  while (!look.empty()) {
    const int at = look.back();
    look.pop_back();
    std::vector<int> next = parts[at].after;
    for (int i = at - 1; i >= 0; --i) {
      if (parts[i].lane == parts[at].lane) {
        next.push_back(i);
        break;
      }
    }
    for (const int one : next) {
      EXPECT_LT(one, at);  // so nothing waits in a circle
      if (before.insert(one).second) look.push_back(one);
    }
  }
  return before;
}

// Also with more ranges of a buffer than are told apart.
TEST(PartsTest, AnyProgramKeepsTheOrderOfWhatTouchesTheSameBytes) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  for (int round = 0; round < 60; ++round) {
    const int places = round % 2 == 0 ? 4 : 200;
    std::vector<Op> ops;
    std::vector<int> lanes;
    for (int i = 0; i < 150; ++i) {
      const auto any = [&] { return At(static_cast<int>(random() % 3), random() % places); };
      if (random() % 2 == 0) {
        ops.push_back(FillOp{any()});
      } else {
        ops.push_back(CopyOp{any(), any()});
      }
      lanes.push_back(static_cast<int>(random() % 4));
    }
    const std::vector<OpRun> parts = CutIntoParts(ops, lanes);
    std::vector<int> part_of(ops.size(), -1);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(std::is_sorted(parts[i].ops.begin(), parts[i].ops.end()));
      for (const int op : parts[i].ops) {
        EXPECT_EQ(part_of[op], -1);
        part_of[op] = static_cast<int>(i);
        EXPECT_EQ(lanes[op], parts[i].lane);
      }
    }
    for (size_t later = 0; later < ops.size(); ++later) {
      ASSERT_NE(part_of[later], -1);
      const std::set<int> before = Before(parts, part_of[later]);
      for (size_t op = 0; op < later; ++op) {
        if (!Conflict(ops[op], ops[later]) || part_of[op] == part_of[later]) continue;
        ASSERT_TRUE(before.contains(part_of[op])) << op << " before " << later;
      }
    }
  }
}

}  // namespace
}  // namespace gemmd::server
