#include "kernels/cuda/weights_stand.h"

#include <gtest/gtest.h>

#include <vector>

namespace gemmd::kernels::cuda {
namespace {

TensorRef Dense(int slot, DType dtype, const Dims& shape, int64_t offset = 0) {
  return {slot, offset, dtype, shape, RowMajorStrides(shape)};
}

class WeightsStandTest : public testing::Test {
 protected:
  WeightsStandTest() {
    op_.a = {Dense(0, DType::kE4M3, MakeDims({64, 256})), ScaleGranularity::kBlock1x128,
             Dense(1, DType::kF32, MakeDims({64, 2}))};
    op_.b = {Dense(2, DType::kE4M3, MakeDims({128, 256})), ScaleGranularity::kBlock128x128,
             Dense(3, DType::kF32, MakeDims({1, 2}))};
    op_.d = Dense(4, DType::kBF16, MakeDims({64, 128}));
    for (size_t i = 0; i < memory_.size(); ++i) slots_.push_back(memory_[i].data());
  }
  bool After(const TensorRef& written) const {
    return WeightsStand(FillOp{written, 0}, op_, slots_);
  }

  MatmulOp op_;
  std::vector<std::vector<std::byte>> memory_{5, std::vector<std::byte>(1 << 17)};
  std::vector<std::byte*> slots_;
};

TEST_F(WeightsStandTest, WhatIsNotOfBDoesNotMatter) {
  EXPECT_TRUE(After(op_.a.values));
  EXPECT_TRUE(After(*op_.a.scales));
  EXPECT_TRUE(After(op_.d));
  EXPECT_TRUE(After(Dense(2, DType::kE4M3, MakeDims({16}), /*offset=*/128 * 256)));
  EXPECT_TRUE(After(Dense(2, DType::kE4M3, MakeDims({0}))));
}

TEST_F(WeightsStandTest, AByteOfBOrItsScalesDoes) {
  EXPECT_FALSE(After(Dense(2, DType::kE4M3, MakeDims({1}), 128 * 256 - 1)));
  EXPECT_FALSE(After(Dense(3, DType::kF32, MakeDims({1}), 4)));
}

TEST_F(WeightsStandTest, ReadingThemDoesNot) {
  const TensorRef elsewhere = Dense(4, DType::kE4M3, MakeDims({128, 256}));
  EXPECT_TRUE(WeightsStand(CopyOp{op_.b.values, elsewhere}, op_, slots_));
  EXPECT_FALSE(WeightsStand(CopyOp{elsewhere, op_.b.values}, op_, slots_));
}

TEST_F(WeightsStandTest, TwoSlotsOnOneAllocation) {
  slots_[4] = slots_[2];
  EXPECT_FALSE(After(op_.d));
}

}  // namespace
}  // namespace gemmd::kernels::cuda
