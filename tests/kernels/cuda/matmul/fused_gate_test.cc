// Which gates the fused kernels take, told before there is a device: each reason names the value,
// the limit and what to do.

#include "kernels/cuda/matmul/fused_gate.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/grouped/gated_matmul.h"
#include "kernels/cuda/grouped/grouped_op.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

TensorRef Dense(int slot, DType dtype, const Dims& shape) {
  return {slot, 0, dtype, shape, RowMajorStrides(shape)};
}

MatmulOp GatedMatmul(int64_t m, int64_t n, int64_t k) {
  MatmulOp op;
  op.a.values = Dense(0, DType::kE4M3, MakeDims({m, k}));
  op.a.granularity = ScaleGranularity::kBlock1x128;
  op.a.scales = Dense(1, DType::kF32, MakeDims({m, (k + 127) / 128}));
  op.b.values = Dense(2, DType::kE4M3, MakeDims({n, k}));
  op.b.granularity = ScaleGranularity::kBlock128x128;
  op.b.scales = Dense(3, DType::kF32, MakeDims({(n + 127) / 128, (k + 127) / 128}));
  op.d = Dense(4, DType::kE4M3, MakeDims({m, n / 2}));
  op.d_scales = Dense(5, DType::kF32, MakeDims({m, (n / 2 + 127) / 128}));
  op.gate = Gate{};
  return op;
}

TEST(FusedGateTest, TakesHalvesAndWholeBlocks) {
  MatmulOp op = GatedMatmul(40, 1024, 512);
  for (const int64_t period : {0, 128, 256, 512}) {
    op.gate->period = period;
    EXPECT_EQ(WhyNotFused(op), "");
  }
  op = GatedMatmul(1, 256, 144);
  EXPECT_EQ(WhyNotFused(op), "");
}

TEST(FusedGateTest, TellsWhatItDoesNotTake) {
  const auto why = [](auto change) {
    MatmulOp op = GatedMatmul(40, 1024, 512);
    change(op);
    return WhyNotFused(op);
  };
  EXPECT_THAT(why([](MatmulOp& op) { op.d.dtype = DType::kBF16; }), HasSubstr("d is bf16"));
  EXPECT_THAT(why([](MatmulOp& op) { op.gate->period = 1; }), HasSubstr("after 1 columns"));
  EXPECT_THAT(why([](MatmulOp& op) { op.gate->period = 64; }), HasSubstr("after 64 columns"));
  EXPECT_THAT(why([](MatmulOp& op) {
                op = GatedMatmul(40, 768, 512);
                op.gate->period = 0;
                op.b.values.shape[0] = 640;
              }),
              HasSubstr("n/2=320 is not a multiple of 128"));
  EXPECT_THAT(why([](MatmulOp& op) { op.d.offset_bytes = 8; }), HasSubstr("starts at byte 8"));
  EXPECT_THAT(why([](MatmulOp& op) { op.d.strides[0] = 520; }), HasSubstr("stride of 520"));
  EXPECT_THAT(why([](MatmulOp& op) { op.d.strides[1] = 2; }), HasSubstr("not contiguous along n"));
  EXPECT_THAT(why([](MatmulOp& op) { op.bias = Dense(6, DType::kF32, MakeDims({1024})); }),
              HasSubstr("bias"));
  EXPECT_THAT(why([](MatmulOp& op) { op.a.granularity = ScaleGranularity::kPerRow; }),
              HasSubstr("scales of a are row"));
  EXPECT_THAT(why([](MatmulOp& op) { op.b.values.dtype = op.a.values.dtype = DType::kBF16; }),
              HasSubstr("a is bf16"));
  EXPECT_THAT(why([](MatmulOp& op) { op.alpha = 0; }), HasSubstr("alpha is 0"));
}

TEST(FusedGateTest, AProductInScratchMemoryIsWhatTheFusedKernelSpares) {
  const MatmulOp op = GatedMatmul(1000, 1024, 512);
  EXPECT_LT(FusedLayout(op).scratch_bytes, 1 << 20);
  const GatedLayout apart = ApartLayout(op, 100);
  EXPECT_EQ(apart.product_offset, 256);
  EXPECT_EQ(apart.scratch_bytes, 256 + 1000 * 1024 * 2);
  EXPECT_EQ(apart.product->d.slot, 6);
  EXPECT_EQ(apart.product->d.dtype, DType::kBF16);
  EXPECT_FALSE(apart.product->gate || apart.product->d_scales);
}

TEST(FusedGateTest, GroupsNeedNoRoomForTheProduct) {
  GroupedMatmulOp op;
  const MatmulOp dense = GatedMatmul(1000, 1024, 512);
  op.a = dense.a;
  op.b = dense.b;
  op.b.values = Dense(2, DType::kE4M3, MakeDims({8, 1024, 512}));
  op.b.scales = Dense(3, DType::kF32, MakeDims({8, 8, 4}));
  op.groups = Dense(6, DType::kI32, MakeDims({9}));
  op.d = dense.d;
  op.d_scales = dense.d_scales;
  op.gate = Gate{};
  ASSERT_EQ(WhyNotFp8(op), "");
  ASSERT_EQ(WhyNotFused(op), "");
  const GroupedLayout apart = LayoutOf(op, true);
  EXPECT_GE(apart.scratch_bytes - LayoutOf(op, true, true).scratch_bytes, 1000 * 1024 * 2);
  op.gate->period = 1;
  EXPECT_THAT(WhyNotFused(op), HasSubstr("use halves"));
}

TEST(FusedGateTest, ItsTimeGrowsWithRowsAndColumns) {
  const DeviceTraits device{.sms = 132};
  const auto seconds = [&](int64_t m, int64_t n) {
    return FusedSeconds(GatedMatmul(m, n, 4096), device, 4.8e12);
  };
  EXPECT_LT(seconds(16, 4096), seconds(16, 28672));
  EXPECT_LT(seconds(64, 28672), seconds(4096, 28672));
  EXPECT_NEAR(seconds(16, 28672), 28672 * 4096 / 4.8e12, 15e-6);  // a read of the weights
}

}  // namespace
}  // namespace gemmd::kernels::cuda
