// Which ops go to work under those in front of them.

#include "kernels/cuda/run/independent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/op.h"

namespace gemmd::kernels::cuda {
namespace {

using Flags = std::vector<bool>;

std::vector<std::byte> arena(1 << 16);

// `slots` places of 4 KiB each, one behind the other.
std::vector<std::byte*> Places(int slots) {
  std::vector<std::byte*> places;
  for (int i = 0; i < slots; ++i) places.push_back(arena.data() + i * 4096);
  return places;
}

TensorRef Floats(int slot, int64_t offset_bytes = 0, int64_t count = 64) {
  return {slot, offset_bytes, DType::kF32, MakeDims({count}), MakeDims({1})};
}

Op CopyOf(int from, int to) { return CopyOp{Floats(from), Floats(to)}; }

Flags Independent(const std::vector<Op>& ops, const std::vector<std::byte*>& places) {
  std::vector<OpTouches> touches;
  for (const Op& op : ops) touches.push_back({*TouchesOf(op), /*may_overlap=*/true});
  return IndependentOps(touches, places);
}

TEST(IndependentTest, WhatSharesNothingWaitsForNothing) {
  const auto places = Places(4);
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 3)}, places), (Flags{false, true}));
}

TEST(IndependentTest, ReadersOfOneTensorDoNotWaitForEachOther) {
  const auto places = Places(3);
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(0, 2)}, places), (Flags{false, true}));
}

TEST(IndependentTest, WaitsForWhatItReadsWritesAgainOrOverwrites) {
  const auto places = Places(4);
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(1, 2)}, places), (Flags{false, false}));
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 1)}, places), (Flags{false, false}));
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 0)}, places), (Flags{false, false}));
}

TEST(IndependentTest, PartsOfOneSlotAreTheirOwn) {
  const auto places = Places(1);
  const auto fill = [](int64_t offset) { return FillOp{Floats(0, offset), 1}; };
  EXPECT_EQ(Independent({fill(0), fill(256)}, places), (Flags{false, true}));
  EXPECT_EQ(Independent({fill(0), fill(252)}, places), (Flags{false, false}));
}

TEST(IndependentTest, MemoryThatIsTwoSlotsIsKnownByItsAddress) {
  auto places = Places(4);
  places[3] = places[0];
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 3)}, places), (Flags{false, false}));
  places[3] = places[0] + 4;
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 3)}, places), (Flags{false, false}));
}

// While 1 works under 0, 2 is let in: it has nothing to do with 1, but 0 may not have ended.
TEST(IndependentTest, AllThatMayStillBeUnderWayCounts) {
  const auto places = Places(8);
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 3), CopyOf(4, 5)}, places),
            (Flags{false, true, true}));
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 3), CopyOf(1, 5)}, places),
            (Flags{false, true, false}));
  // 2 has waited for 1, which waits for 0 at its end: 3 may read what 0 wrote.
  EXPECT_EQ(Independent({CopyOf(0, 1), CopyOf(2, 3), CopyOf(3, 5), CopyOf(1, 6)}, places),
            (Flags{false, true, false, true}));
}

TEST(IndependentTest, SoManyAndNoMoreAreUnderWayTogether) {
  const auto places = Places(16);
  std::vector<Op> ops;
  for (int i = 0; i < 12; ++i) ops.push_back(FillOp{Floats(i), 1});
  EXPECT_EQ(Independent(ops, places), (Flags{false, true, true, true, true,  //
                                             false, true, true, true, true,  //
                                             false, true}));
}

// An op that need not wait starts once the op in front has started, and ends after that one has
// ended; one that waits starts when all in front have ended. So under way with op i may be those
// behind the last op before it that waited, and that one.
TEST(IndependentTest, NothingUnderWayTogetherConflicts) {
  const auto places = Places(16);
  std::mt19937 random(1);
  int independent_ops = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<OpTouches> ops(24);
    for (OpTouches& op : ops) {
      op.may_overlap = random() % 4 != 0;
      const int tensors = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < tensors; ++i) {
        const int64_t begin = static_cast<int64_t>(random() % 64);
        const int64_t end = begin + static_cast<int64_t>(random() % 48);
        op.all.push_back({static_cast<int>(random() % 16), {begin, end}, random() % 3 == 0});
      }
    }
    const auto conflict = [&](const OpTouches& a, const OpTouches& b) {
      for (const Touched& x : a.all) {
        for (const Touched& y : b.all) {
          if (x.slot == y.slot && (x.written || y.written) && x.bytes.Overlaps(y.bytes))
            return true;
        }
      }
      return false;
    };
    const Flags independent = IndependentOps(ops, places);
    size_t waited = 0;  // the last op that did
    for (size_t i = 0; i < ops.size(); ++i) {
      const bool conflicts = std::any_of(ops.begin() + waited, ops.begin() + i,
                                         [&](const auto& op) { return conflict(op, ops[i]); });
      if (independent[i]) {
        ++independent_ops;
        EXPECT_TRUE(ops[i].may_overlap);
        EXPECT_FALSE(conflicts) << "round " << round << ", op " << i;
      } else {
        EXPECT_TRUE(i == 0 || !ops[i].may_overlap || conflicts || i - waited == 5)
            << "round " << round << ", op " << i << " waits for nothing";
        waited = i;
      }
    }
  }
  EXPECT_GT(independent_ops, 500);
}

TEST(IndependentTest, OnlyWhatMayOverlapDoes) {
  const auto places = Places(4);
  std::vector<OpTouches> touches;
  for (const Op& op : {CopyOf(0, 1), CopyOf(2, 3)}) touches.push_back({*TouchesOf(op), false});
  EXPECT_EQ(IndependentOps(touches, places), (Flags{false, false}));
  EXPECT_EQ(IndependentOps({}, {}), Flags{});
}

TEST(IndependentTest, ScalesBiasAndCCountToo) {
  const auto places = Places(8);
  const auto dense = [](int slot, DType dtype, const Dims& shape) {
    return TensorRef{slot, 0, dtype, shape, RowMajorStrides(shape)};
  };
  MatmulOp matmul;
  matmul.a = {dense(0, DType::kE4M3, MakeDims({4, 128})), ScaleGranularity::kBlock1x128,
              dense(1, DType::kF32, MakeDims({4, 1}))};
  matmul.b = {dense(2, DType::kE4M3, MakeDims({8, 128})), ScaleGranularity::kBlock128x128,
              dense(3, DType::kF32, MakeDims({1, 1}))};
  matmul.c = dense(4, DType::kF32, MakeDims({4, 8}));
  matmul.bias = dense(5, DType::kF32, MakeDims({8}));
  matmul.d = dense(6, DType::kF32, MakeDims({4, 8}));
  for (int slot = 0; slot < 8; ++slot) {
    EXPECT_EQ(Independent({matmul, FillOp{Floats(slot), 1}}, places), (Flags{false, slot == 7}))
        << slot;
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
