// Which gates the fused kernels take, told before there is a device: each reason names the value,
// the limit and what to do.

#include "kernels/cuda/matmul/fused_gate.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/cuda/matmul/gate_family.h"
#include "kernels/cuda/matmul/pool.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

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

std::string Why(const MatmulOp& op) {
  return GateFamily(DeviceTraits(), 4.8e12).WhyNot(0, ProblemOf(op));
}

TEST(FusedGateTest, TakesHalvesAndWholeBlocks) {
  MatmulOp op = GatedMatmul(40, 1024, 512);
  for (const int64_t period : {0, 128, 256, 512}) {
    op.gate->period = period;
    EXPECT_EQ(Why(op), "");
  }
  op = GatedMatmul(1, 256, 144);
  EXPECT_EQ(Why(op), "");
}

TEST(FusedGateTest, TakesGatesAloneWithABias) {
  for (const int64_t n : {16, 128, 384, 4304}) {
    MatmulOp op = GatedMatmul(40, 2 * n, 512);  // n columns of d
    op.b.values.shape[0] = n;
    op.b.scales->shape[0] = (n + 127) / 128;
    op.gate->alone = true;
    op.bias = Dense(6, DType::kF32, MakeDims({n}));
    EXPECT_EQ(Why(op), "") << n;
    op.bias->strides[0] = 2;
    EXPECT_THAT(Why(op), HasSubstr("bias is not contiguous")) << n;
  }
  MatmulOp op = GatedMatmul(40, 512, 512);
  op.gate->alone = true;
  op.b.values.shape[0] = 250;
  EXPECT_THAT(Why(op), HasSubstr("n=250 is not a multiple of 16"));
}

TEST(FusedGateTest, TellsWhatItDoesNotTake) {
  const auto why = [](auto change) {
    MatmulOp op = GatedMatmul(40, 1024, 512);
    change(op);
    return Why(op);
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
  EXPECT_THAT(why([](MatmulOp& op) { op.d.offset_bytes = 8; }),
              HasSubstr("multiples of 8 bytes only"));
  EXPECT_THAT(why([](MatmulOp& op) { op.d.strides[0] = 520; }),
              HasSubstr("place them at multiples of 16"));
  EXPECT_THAT(why([](MatmulOp& op) { op.d.strides[1] = 2; }), HasSubstr("not contiguous along n"));
  EXPECT_THAT(why([](MatmulOp& op) { op.bias = Dense(6, DType::kF32, MakeDims({1024})); }),
              HasSubstr("bias"));
  EXPECT_THAT(why([](MatmulOp& op) { op.a.granularity = ScaleGranularity::kPerRow; }),
              HasSubstr("scales of a are row"));
  EXPECT_THAT(why([](MatmulOp& op) { op.b.values.dtype = op.a.values.dtype = DType::kBF16; }),
              HasSubstr("a is bf16"));
  EXPECT_THAT(why([](MatmulOp& op) { op.alpha = 0; }), HasSubstr("alpha is 0"));
}

// Compile and Explain ask the same pool the same question.
TEST(FusedGateTest, APoolChoosesBetweenItAndAGateBehindAProduct) {
  const DeviceTraits device;
  const GemmPool pool({.device = device,
                       .memory_bytes_per_s = 4.8e12,
                       .families = {std::make_shared<GateFamily>(device, 4.8e12)}});
  MatmulOp op = GatedMatmul(1000, 1024, 512);
  const MatmulProblem problem = ProblemOf(op);
  const PoolPick fused = pool.Choose(problem, kFp8GateName).value();
  EXPECT_LT(pool.ScratchBytes(fused.member, problem), 1 << 20);
  const std::string apart_name = Name(AllVariants()[0]);
  const PoolPick apart = pool.Choose(problem, apart_name).value();
  EXPECT_EQ(pool.ScratchBytes(apart.member, problem), 1000 * 4 * 4 + 128 + 1000 * 1024 * 2);
  const PoolPick product = pool.Choose(ProductOf(problem), apart_name).value();
  EXPECT_GT(apart.choice.estimated_seconds, product.choice.estimated_seconds + 2e-6);
  EXPECT_THAT(std::string(pool.Choose(ProductOf(problem), kFp8GateName).status().message()),
              HasSubstr("there is no gate"));
  for (const int64_t m : {16, 1000, 100000}) {
    op = GatedMatmul(m, 1024, 512);
    EXPECT_EQ(pool.Explain(ProblemOf(op))[0].kernel, pool.Choose(ProblemOf(op))->choice.kernel);
  }
  EXPECT_EQ(pool.Choose(ProblemOf(GatedMatmul(16, 28672, 4096)))->choice.kernel, kFp8GateName);
  op = GatedMatmul(1 << 20, 1024, 512);  // 2 GiB of product
  EXPECT_EQ(pool.Choose(ProblemOf(op))->choice.kernel, kFp8GateName);
  EXPECT_THAT(std::string(pool.Choose(ProblemOf(op), apart_name).status().message()),
              HasSubstr("the product in front of the gate takes more than 1073741824 bytes"));
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
    return GateFamily(device, 4.8e12).Seconds(0, ProblemOf(GatedMatmul(m, n, 4096)));
  };
  EXPECT_LT(seconds(16, 4096), seconds(16, 28672));
  EXPECT_LT(seconds(64, 28672), seconds(4096, 28672));
  EXPECT_NEAR(seconds(16, 28672), 28672 * 4096 / 4.8e12, 15e-6);  // a read of the weights
}

}  // namespace
}  // namespace gemmd::kernels::cuda
