#include "client/cpp/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Handle AnyBuffer() { return *Handle::FromBytes("0123456789abcdef"); }

TEST(TensorTest, DenseViewHasRowMajorStrides) {
  const Tensor tensor(AnyBuffer(), DType::kF32, {2, 3, 5}, 64);
  EXPECT_TRUE(tensor.status().ok());
  EXPECT_THAT(tensor.strides(), ElementsAre(15, 5, 1));
  EXPECT_EQ(tensor.elements(), 30);
  EXPECT_EQ(tensor.dense_bytes(), 120);
  EXPECT_TRUE(tensor.dense());
}

TEST(TensorTest, TransposingSwapsTheLastTwoDimensionsAndKeepsTheBatch) {
  const Tensor tensor = Tensor(AnyBuffer(), DType::kBF16, {2, 3, 5}).Transposed();
  EXPECT_THAT(tensor.shape(), ElementsAre(2, 5, 3));
  EXPECT_THAT(tensor.strides(), ElementsAre(15, 1, 5));
  EXPECT_FALSE(tensor.dense());
  EXPECT_TRUE(tensor.Transposed().dense());
}

TEST(TensorTest, SliceMovesTheOffsetByWholeStrides) {
  const Tensor tensor = Tensor(AnyBuffer(), DType::kF16, {8, 10}, 32).Slice(0, 3, 2).Slice(1, 4, 6);
  EXPECT_THAT(tensor.shape(), ElementsAre(2, 6));
  EXPECT_EQ(tensor.offset_bytes(), 32 + 2 * (3 * 10 + 4));
  EXPECT_FALSE(tensor.dense());
}

TEST(TensorTest, AtDropsTheFirstDimension) {
  const Tensor tensor = Tensor(AnyBuffer(), DType::kF32, {4, 6, 2}).At(3);
  EXPECT_THAT(tensor.shape(), ElementsAre(6, 2));
  EXPECT_EQ(tensor.offset_bytes(), 4 * 3 * 12);
}

TEST(TensorTest, SlicePastTheEndIsInvalidAndStaysSo) {
  const Tensor tensor(AnyBuffer(), DType::kF32, {8, 10});
  for (const Tensor& bad : {tensor.Slice(0, 7, 2), tensor.Slice(2, 0, 1), tensor.Slice(1, -1, 3),
                            tensor.Slice(1, 0, -1), tensor.Slice(0, INT64_MAX, INT64_MAX)}) {
    EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(bad.Transposed().Slice(0, 0, 1).status(), bad.status());
  }
  EXPECT_THAT(std::string(tensor.Slice(0, 7, 2).status().message()), HasSubstr("[8, 10]"));
}

TEST(TensorTest, ReshapeNeedsADenseViewAndAsManyElements) {
  const Tensor tensor(AnyBuffer(), DType::kI8, {6, 4});
  EXPECT_THAT(tensor.Reshaped({2, 12}).strides(), ElementsAre(12, 1));
  EXPECT_FALSE(tensor.Reshaped({5, 5}).status().ok());
  EXPECT_FALSE(tensor.Transposed().Reshaped({24}).status().ok());
}

TEST(TensorTest, ConstructionRefusesWhatNoServerServes) {
  EXPECT_FALSE(Tensor(Handle(), DType::kF32, {1}).status().ok());
  EXPECT_FALSE(Tensor(AnyBuffer(), DType::kUnspecified, {1}).status().ok());
  EXPECT_FALSE(Tensor(AnyBuffer(), DType::kF32, {}).status().ok());
  EXPECT_FALSE(Tensor(AnyBuffer(), DType::kF32, {1, 1, 1, 1}).status().ok());
  EXPECT_FALSE(Tensor(AnyBuffer(), DType::kF32, {4, 4}, {1}, 0).status().ok());
  EXPECT_TRUE(Tensor().empty());
}

}  // namespace
}  // namespace gemmd::client
