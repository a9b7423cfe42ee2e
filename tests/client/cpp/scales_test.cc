#include "client/cpp/scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "client/cpp/ops.h"
#include "gemmd/v1/compute_service.pb.h"

namespace gemmd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kBlocks = ScaleGranularity::kBlock1x128;

Tensor Room(absl::Span<const int64_t> shape, int64_t offset_bytes = 0) {
  return Tensor(*Handle::FromBytes("0123456789abcdef"), DType::kF32, shape, offset_bytes);
}

TEST(ScalesTest, HaveTheShapeThatTheGranularitySays) {
  EXPECT_THAT(ScalesShape({130, 300}, ScaleGranularity::kPerTensor), ElementsAre(1));
  EXPECT_THAT(ScalesShape({130, 300}, ScaleGranularity::kPerRow), ElementsAre(130));
  EXPECT_THAT(ScalesShape({130, 300}, kBlocks), ElementsAre(130, 3));
  EXPECT_THAT(ScalesShape({130, 300}, ScaleGranularity::kBlock128x128), ElementsAre(2, 3));
  EXPECT_THAT(ScalesShape({7, 130, 256}, kBlocks), ElementsAre(7, 130, 2));
  EXPECT_THAT(ScalesShape({130, 300}, ScaleGranularity::kNone), IsEmpty());
  EXPECT_THAT(ScalesShape({300}, kBlocks), IsEmpty());
}

TEST(ScalesTest, OnlyThoseOf1x128TakeOtherRoomThanTheirShape) {
  EXPECT_THAT(ScalesRoom({130, 300}, kBlocks), ElementsAre(3, 132));
  EXPECT_THAT(ScalesRoom({128, 300}, kBlocks), ElementsAre(3, 128));
  EXPECT_THAT(ScalesRoom({7, 1, 300}, kBlocks), ElementsAre(7, 3, 4));
  for (const auto granularity :
       {ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow, ScaleGranularity::kBlock128x128}) {
    EXPECT_EQ(ScalesRoom({130, 300}, granularity), ScalesShape({130, 300}, granularity));
    const Tensor scales =
        ScalesIn(Room(ScalesRoom({130, 300}, granularity)), {130, 300}, granularity);
    EXPECT_TRUE(scales.dense());
    EXPECT_EQ(scales.shape(), ScalesShape({130, 300}, granularity));
  }
}

// What a GPU's kernels take as it is: tests/kernels/cuda/matmul/gemm_op_test.cc has the other end.
TEST(ScalesTest, Of1x128LieAlongTheRowsInPaddedColumns) {
  for (const int64_t rows : {0, 1, 3, 4, 62, 128, 130}) {
    for (const int64_t k : {1, 128, 129, 7168}) {
      const Tensor room = Room(ScalesRoom({rows, k}, kBlocks), 256);
      const Tensor scales = ScalesIn(room, {rows, k}, kBlocks);
      ASSERT_TRUE(scales.status().ok()) << scales.status();
      EXPECT_EQ(scales.shape(), ScalesShape({rows, k}, kBlocks));
      EXPECT_EQ(scales.offset_bytes(), 256);
      EXPECT_EQ(scales.strides()[0], 1);
      EXPECT_EQ(scales.strides()[1] % 4, 0);
      EXPECT_GE(scales.strides()[1], rows);
      const int64_t last = (rows - 1) + (scales.shape()[1] - 1) * scales.strides()[1];
      EXPECT_LT(last, room.elements());
    }
  }
}

TEST(ScalesTest, NoTwoOfABatchShareAPlace) {
  const Tensor room = Room(ScalesRoom({3, 5, 300}, kBlocks));
  const Tensor scales = ScalesIn(room, {3, 5, 300}, kBlocks);
  ASSERT_TRUE(scales.status().ok()) << scales.status();
  EXPECT_THAT(scales.shape(), ElementsAre(3, 5, 3));
  EXPECT_THAT(scales.strides(), ElementsAre(24, 1, 8));
  std::set<int64_t> places;
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t block = 0; block < 3; ++block) {
        places.insert(i * scales.strides()[0] + row + block * scales.strides()[2]);
      }
    }
  }
  EXPECT_EQ(places.size(), 3u * 5 * 3);
  EXPECT_LT(*places.rbegin(), room.elements());
}

TEST(ScalesTest, ARoomThatDoesNotFitIsToldOf) {
  const Tensor scales = ScalesIn(Room({130, 3}), {130, 300}, kBlocks);
  EXPECT_EQ(scales.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(scales.status().message()), HasSubstr("[3, 132]"));
  EXPECT_FALSE(ScalesIn(Room({132, 3}).Transposed(), {130, 300}, kBlocks).status().ok());
  EXPECT_FALSE(ScalesIn(Room({4}), {4, 8}, ScaleGranularity::kNone).status().ok());
}

TEST(ScalesTest, TravelWithTheirStrides) {
  const Tensor scales = ScalesIn(Room(ScalesRoom({62, 300}, kBlocks)), {62, 300}, kBlocks);
  const Tensor x(scales.buffer(), DType::kBF16, {62, 300});
  OpList ops;
  ops.Add(Quantize{x, Tensor(scales.buffer(), DType::kE4M3, {62, 300}), scales, kBlocks});
  v1::ExecuteRequest request;
  ASSERT_TRUE(request.ParseFromString(std::string(ops.wire())));
  EXPECT_THAT(request.ops(0).quantize().scales().shape(), ElementsAre(62, 3));
  EXPECT_THAT(request.ops(0).quantize().scales().strides(), ElementsAre(1, 64));
}

}  // namespace
}  // namespace gemmd::client
