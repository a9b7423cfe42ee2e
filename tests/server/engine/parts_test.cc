// Where a program of several lanes is cut, and which part waits for which.

#include "server/engine/scheduling/parts.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::server {
namespace {

using kernels::CopyOp;
using kernels::FillOp;
using kernels::Op;
using kernels::TensorRef;
using Before = OpRun::Before;
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
  EXPECT_THAT(parts[2].after, ElementsAre(Before{0, 0}));
}

TEST(PartsTest, APartBeginsWithWhatWaits) {
  const std::vector<Op> ops = {FillOp{At(0)}, FillOp{At(1)}, FillOp{At(3)}, CopyOp{At(0), At(1)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {0, 1, 1, 1});
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_THAT(parts[1].ops, ElementsAre(1, 2));
  EXPECT_THAT(parts[1].after, IsEmpty());
  EXPECT_THAT(parts[2].ops, ElementsAre(3));
  EXPECT_THAT(parts[2].after, ElementsAre(Before{0, 0}));
}

TEST(PartsTest, AReadIsWaitedForByWhoeverWritesOverIt) {
  const std::vector<Op> ops = {CopyOp{At(0), At(1)}, FillOp{At(0)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {1, 0});
  ASSERT_THAT(parts, SizeIs(2));
  EXPECT_THAT(parts[1].after, ElementsAre(Before{0, 0}));
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

// A sum over two devices: each computes what the other one adds up, then its own, then adds up.
const std::vector<int> kSumLanes = {0, 1, 0, 1, 0, 1};
std::vector<Op> Sum() {
  return {FillOp{At(1, 0)}, FillOp{At(0, 0)},        FillOp{At(0, 1)},
          FillOp{At(1, 1)}, CopyOp{At(0, 0), At(2)}, CopyOp{At(1, 0), At(3)}};
}

TEST(PartsTest, WithoutMarksWhatIsAwaitedEndsItsPart) {
  const std::vector<OpRun> parts = CutIntoParts(Sum(), kSumLanes);
  ASSERT_THAT(parts, SizeIs(6));
  EXPECT_THAT(parts[0].awaited, ElementsAre(0));
  EXPECT_THAT(parts[2].awaited, IsEmpty());
}

TEST(PartsTest, WithMarksFewOpsStayBehindWhatIsAwaited) {
  const std::vector<OpRun> parts = CutIntoParts(Sum(), kSumLanes, {true, true});
  ASSERT_THAT(parts, SizeIs(4));
  EXPECT_THAT(parts[0].ops, ElementsAre(0, 2));
  EXPECT_THAT(parts[0].awaited, ElementsAre(0));
  EXPECT_THAT(parts[1].ops, ElementsAre(1, 3));
  EXPECT_THAT(parts[2].ops, ElementsAre(4));
  EXPECT_THAT(parts[2].after, ElementsAre(Before{1, 0}));
  EXPECT_THAT(parts[2].awaited, IsEmpty());
  EXPECT_THAT(parts[3].after, ElementsAre(Before{0, 0}));
}

TEST(PartsTest, ALaneWithoutMarksIsCutBesideOneWithThem) {
  EXPECT_THAT(CutIntoParts(Sum(), kSumLanes, {true, false}), SizeIs(5));
  EXPECT_THAT(CutIntoParts(Sum(), kSumLanes, {true}), SizeIs(5));
}

// Else the other lane would wait until the host has launched them.
TEST(PartsTest, ManyOpsBehindWhatIsAwaitedAreAPartOfTheirOwn) {
  std::vector<Op> ops = {FillOp{At(0)}};
  std::vector<int> lanes = {0};
  for (int i = 0; i < 4; ++i) {
    ops.push_back(FillOp{At(2)});
    lanes.push_back(0);
  }
  ops.push_back(CopyOp{At(0), At(1)});
  lanes.push_back(1);
  const std::vector<OpRun> parts = CutIntoParts(ops, lanes, {true, true});
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_THAT(parts[0].ops, ElementsAre(0));
  EXPECT_THAT(parts[0].awaited, ElementsAre(0));
}

// Each lane waits for what it needs of the part, and for no more.
TEST(PartsTest, APartMayHaveSeveralThatAreAwaited) {
  const std::vector<Op> ops = {FillOp{At(0)}, FillOp{At(4)}, FillOp{At(1)}, CopyOp{At(0), At(2)},
                               CopyOp{At(1), At(3)}};
  const std::vector<OpRun> parts = CutIntoParts(ops, {0, 0, 0, 1, 2}, {true, true, true});
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_THAT(parts[0].ops, ElementsAre(0, 1, 2));
  EXPECT_THAT(parts[0].awaited, ElementsAre(0, 2));
  EXPECT_THAT(parts[1].after, ElementsAre(Before{0, 0}));
  EXPECT_THAT(parts[2].after, ElementsAre(Before{0, 1}));
}

// A sum over so many devices: a device has a part up to its addition, and few more where it works
// for many others; each addition begins a part.
TEST(PartsTest, ASumOverManyDevicesIsFewPartsADevice) {
  for (const auto& [devices, wanted] : {std::pair(3, 2), std::pair(4, 2), std::pair(8, 3)}) {
    std::vector<Op> ops;
    std::vector<int> lanes;
    const auto add = [&](const Op& op, int lane) {
      ops.push_back(op);
      lanes.push_back(lane);
    };
    for (int step = 1; step <= devices; ++step) {
      for (int at = 0; at < devices; ++at) add(FillOp{At((at + step) % devices, at)}, at);
    }
    for (int at = 0; at < devices; ++at) {
      kernels::TensorRef all = At(at);
      all.shape = kernels::MakeDims({4 * devices});
      add(CopyOp{all, At(devices + at)}, at);
    }
    const std::vector<OpRun> parts = CutIntoParts(ops, lanes, std::vector<bool>(devices, true));
    EXPECT_THAT(parts, SizeIs(devices * wanted)) << devices;
    EXPECT_THAT(parts.back().after, SizeIs(devices - 1));
  }
}

TEST(PartsTest, WhatManyWaitForIsCutNowAndThen) {
  std::vector<Op> ops;
  std::vector<int> lanes;
  for (int i = 0; i < 12; ++i) {
    ops.push_back(FillOp{At(0, i)});
    lanes.push_back(0);
  }
  for (int i = 0; i < 12; ++i) {
    ops.push_back(CopyOp{At(0, i), At(1, i)});
    lanes.push_back(1);
  }
  const std::vector<OpRun> parts = CutIntoParts(ops, lanes, {true, true});
  std::vector<size_t> sizes;
  for (const OpRun& part : parts) {
    if (part.lane == 0) sizes.push_back(part.ops.size());
  }
  EXPECT_THAT(sizes, ElementsAre(4, 4, 4));
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

// The ops that are surely over when `part` begins: those of its lane, and of a part that it waits
// for those up to the mark.
std::set<int> OpsBefore(const std::vector<OpRun>& parts, int part) {
  std::set<int> before;
  std::vector<std::pair<int, int>> look = {{part, 0}};  // part, and how many of its ops are over
  std::set<std::pair<int, int>> seen;
  while (!look.empty()) {
    const auto [at, over] = look.back();
    look.pop_back();
    if (!seen.insert({at, over}).second) continue;
    for (int i = 0; i < over; ++i) before.insert(parts[at].ops[i]);
    for (const auto& [one, awaited] : parts[at].after) {
      EXPECT_LT(one, at);  // so nothing waits in a circle
      look.emplace_back(one, parts[one].awaited[awaited] + 1);
    }
    for (int i = at - 1; i >= 0; --i) {
      if (parts[i].lane != parts[at].lane) continue;
      look.emplace_back(i, static_cast<int>(parts[i].ops.size()));
      break;
    }
  }
  return before;
}

// Also with more ranges of a buffer than are told apart.
TEST(PartsTest, AnyProgramKeepsTheOrderOfWhatTouchesTheSameBytes) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  for (int round = 0; round < 60; ++round) {
    const int places = round % 2 == 0 ? 4 : 200;
    const std::vector<bool> marks = {random() % 2 == 0, random() % 2 == 0, random() % 2 == 0};
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
    const std::vector<OpRun> parts = CutIntoParts(ops, lanes, marks);
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
      const std::set<int> before = OpsBefore(parts, part_of[later]);
      for (int op = 0; op < static_cast<int>(later); ++op) {
        if (!Conflict(ops[op], ops[later]) || part_of[op] == part_of[later]) continue;
        ASSERT_TRUE(before.contains(op)) << op << " before " << later;
      }
    }
  }
}

}  // namespace
}  // namespace gemmd::server
