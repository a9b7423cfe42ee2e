#include "kernels/tensor.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd::kernels {
namespace {

constexpr int64_t kMaxExtent = std::numeric_limits<int64_t>::max();

TEST(TensorTest, PrintsDims) {
  EXPECT_EQ(ToString(MakeDims({64, 7168})), "[64, 7168]");
  EXPECT_EQ(ToString(Dims{}), "[]");
}

TEST(TensorTest, RowMajorStridesEndWithOne) {
  EXPECT_EQ(RowMajorStrides(MakeDims({2, 3, 5})), MakeDims({15, 5, 1}));
}

TEST(TensorTest, RowMajorStridesOfHugeShapesAreDefined) {
  EXPECT_EQ(RowMajorStrides(MakeDims({kMaxExtent, kMaxExtent, kMaxExtent}))[2], 1);
}

TEST(TensorTest, CountsElements) {
  EXPECT_EQ(NumElements(MakeDims({2, 3, 5})).value(), 30);
  EXPECT_EQ(NumElements(MakeDims({kMaxExtent, kMaxExtent, 0})).value(), 0);
}

TEST(TensorTest, RefusesToCountBeyondInt64) {
  EXPECT_EQ(NumElements(MakeDims({kMaxExtent, 2})).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(TensorTest, TouchesFromFirstToLastElement) {
  const TensorRef tensor{0, 16, DType::kBF16, MakeDims({3, 4}), MakeDims({10, 2})};
  const ByteRange range = TouchedBytes(tensor).value();
  EXPECT_EQ(range.begin, 16);
  EXPECT_EQ(range.end, 16 + 2 * (2 * 10 + 3 * 2 + 1));
}

TEST(TensorTest, TouchesNothingWithoutElements) {
  const TensorRef tensor{0, 16, DType::kF32, MakeDims({3, 0}), MakeDims({1000, 1})};
  EXPECT_TRUE(TouchedBytes(tensor).value().empty());
}

TEST(TensorTest, RefusesRangesThatOverflow) {
  for (const auto& [shape, strides, offset] :
       {std::tuple{MakeDims({kMaxExtent}), MakeDims({1}), int64_t{8}},
        {MakeDims({3, 3}), MakeDims({kMaxExtent / 2, 1}), int64_t{0}},
        {MakeDims({2}), MakeDims({kMaxExtent}), int64_t{0}},
        {MakeDims({2, 2}), MakeDims({kMaxExtent / 2, kMaxExtent / 2 + 2}), int64_t{0}}}) {
    const TensorRef tensor{0, offset, DType::kF32, shape, strides};
    EXPECT_EQ(TouchedBytes(tensor).status().code(), absl::StatusCode::kInvalidArgument)
        << ToString(shape);
  }
}

TEST(TensorTest, NamesTheNegativeDimension) {
  const TensorRef tensor{0, 0, DType::kF32, MakeDims({3, 4}), MakeDims({4, -1})};
  EXPECT_THAT(std::string(TouchedBytes(tensor).status().message()),
              testing::HasSubstr("stride -1 of dimension 1 is negative"));
}

TEST(TensorTest, EmptyRangesOverlapNothing) {
  EXPECT_FALSE((ByteRange{4, 4}.Overlaps({0, 8})));
  EXPECT_TRUE((ByteRange{4, 5}.Overlaps({0, 8})));
  EXPECT_FALSE((ByteRange{8, 9}.Overlaps({0, 8})));
}

}  // namespace
}  // namespace gemmd::kernels
