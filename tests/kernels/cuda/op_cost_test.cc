#include "kernels/cuda/ops/op_cost.h"

#include "gtest/gtest.h"

namespace gemmd::kernels::cuda {
namespace {

TensorRef View(DType dtype, Dims shape, Dims strides) { return {0, 0, dtype, shape, strides}; }

TEST(OpCostTest, CountsSectorsThatAViewTouches) {
  // Dense: its bytes, and a part of a sector at the end.
  EXPECT_NEAR(TouchedSectorBytes(View(DType::kF32, MakeDims({1 << 20}), MakeDims({1}))), 4 << 20,
              32);
  // Transposed: the same memory.
  EXPECT_NEAR(TouchedSectorBytes(View(DType::kI8, MakeDims({1024, 1024}), MakeDims({1, 1024}))),
              1 << 20, 32 * 1024);
  // Every 64th byte: a sector each.
  EXPECT_EQ(TouchedSectorBytes(View(DType::kI8, MakeDims({1000}), MakeDims({64}))), 32 * 1000);
  // Rows of 2 bytes, 64 apart: about one each.
  const double rows = TouchedSectorBytes(View(DType::kI8, MakeDims({1000, 2}), MakeDims({64, 1})));
  EXPECT_GE(rows, 32 * 1000);
  EXPECT_LE(rows, 64 * 1000);
  EXPECT_EQ(TouchedSectorBytes(View(DType::kF32, MakeDims({1000}), MakeDims({0}))), 4);
  EXPECT_EQ(TouchedSectorBytes(View(DType::kF32, MakeDims({0, 5}), MakeDims({5, 1}))), 0);
}

TEST(OpCostTest, AColumnWiseWalkCostsASectorAnElement) {
  constexpr double kRate = 4e12;
  const Dims shape = MakeDims({16384, 16384});
  const TensorRef dense = View(DType::kI8, shape, MakeDims({16384, 1}));
  const TensorRef transposed = View(DType::kI8, shape, MakeDims({1, 16384}));
  const double straight = MoveSeconds(CopyOp{dense, dense}, kRate);
  EXPECT_GT(MoveSeconds(CopyOp{transposed, dense}, kRate), 5 * straight);
  // Read and written alike, it is walked along its rows in memory.
  EXPECT_NEAR(MoveSeconds(CopyOp{transposed, transposed}, kRate), straight, 0.1 * straight);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
