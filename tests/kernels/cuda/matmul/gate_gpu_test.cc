// The kernels that apply a matmul's gate themselves, held bit for bit against the matmul and the
// gate one behind the other, which the contract suite holds against float64.

#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/sm90/launch/gate_launch.h"
#include "kernels/cuda/sm90/launch/grouped.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/grouped_case.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::contract {
namespace {

constexpr GroupLayout kLayouts[] = {GroupLayout::kOffsets, GroupLayout::kCounts,
                                    GroupLayout::kRowIds, GroupLayout::kEnds};
constexpr int kRuns = 20;

std::unique_ptr<Executor> Without(std::vector<std::string> disabled_kernels) {
  CudaBackendOptions options;
  options.memory_bytes = int64_t{4} << 30;
  options.disabled_kernels = std::move(disabled_kernels);
  options.self_test = false;
  return MakeBackendExecutor(*CreateCudaBackend(options));
}

class GateGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    fused_ = Without({});
    apart_ = Without({cuda::kFp8GateName});
  }

  // Both ways leave the same bytes, those around included; the fused one did run, though few rows
  // would not choose it.
  void ExpectSameBits(Scene& scene, const GroupedMatmulOp& op) {
    GroupedMatmulOp by_gate = op;
    by_gate.kernel = cuda::kFp8GateName;
    const Outcome fused = scene.Run(*fused_, by_gate);
    const Outcome apart = scene.Run(*apart_, op);
    ASSERT_EQ(fused.kernels.size(), 1u);
    EXPECT_EQ(fused.kernels[0], cuda::kFp8GateName);
    EXPECT_NE(apart.kernels[0], cuda::kFp8GateName);
    for (size_t slot = 0; slot < fused.slots.size(); ++slot) {
      const auto [a, b] = std::mismatch(fused.slots[slot].begin(), fused.slots[slot].end(),
                                        apart.slots[slot].begin());
      EXPECT_TRUE(a == fused.slots[slot].end())
          << "slot " << slot << " byte " << a - fused.slots[slot].begin() << ": "
          << static_cast<int>(*a) << ", apart " << static_cast<int>(*b);
    }
  }

  std::unique_ptr<Executor> fused_, apart_;
};

GroupedCase Fp8Case(GroupLayout layout, int64_t n, int64_t k, std::vector<int64_t> rows) {
  return {.layout = layout,
          .rows = std::move(rows),
          .n = n,
          .k = k,
          .alignment = 16,
          .dtype = DType::kE4M3,
          .out = DType::kBF16,
          .a_granularity = ScaleGranularity::kBlock1x128,
          .b_granularity = ScaleGranularity::kBlock128x128};
}

GroupedScene MakeGated(Scene& scene, const GroupedCase& c, const Gate& gate) {
  GroupedScene grouped = MakeGrouped(scene, c);
  GroupedMatmulOp& op = grouped.op;
  Dims half = op.d.shape;
  half[half.rank - 1] /= 2;
  op.d = scene.Poisoned(DType::kE4M3, half, c.d);
  op.d_scales = scene.Poisoned(DType::kF32, ScaleShape(half, ScaleGranularity::kBlock1x128));
  op.alpha = 1e-4f;
  op.gate = gate;
  return grouped;
}

const std::vector<int64_t> kRowsOfGroups[] = {
    {5, 0, 64, 1, 33},    {65, 130, 0, 257, 3}, {0, 0, 16},        {300},
    {150, 192, 440, 520}, {257, 288, 0, 790},   {272, 529, 3, 801}};

TEST_F(GateGpuTest, SameBitsAsApartInEveryLayout) {
  Scene seeds;
  for (GroupLayout layout : kLayouts) {
    for (const std::vector<int64_t>& rows : kRowsOfGroups) {
      for (const auto& [n, k, period] : {std::tuple<int64_t, int64_t, int64_t>{256, 128, 0},
                                         {512, 384, 0},
                                         {512, 1424, 128},
                                         {1536, 2048, 256},
                                         {768, 272, 128}}) {
        const GroupedCase c = Fp8Case(layout, n, k, rows);
        SCOPED_TRACE(ToString(c) + " period " + std::to_string(period));
        Scene scene(seeds.random()());
        ExpectSameBits(scene, MakeGated(scene, c, {.period = period}).op);
      }
    }
  }
}

TEST_F(GateGpuTest, SameBitsAsApartOfMatricesThatLieApart) {
  Scene seeds;
  for (GroupLayout layout : kLayouts) {
    for (const std::vector<int64_t>& rows : kRowsOfGroups) {
      for (const int64_t k : {384, 272}) {
        GroupedCase c = Fp8Case(layout, 512, k, rows);
        c.table = true;
        SCOPED_TRACE(ToString(c));
        Scene scene(seeds.random()());
        ExpectSameBits(scene, MakeGated(scene, c, {.period = 128}).op);
      }
    }
  }
}

TEST_F(GateGpuTest, SameBitsAsApartWithEveryActivation) {
  Scene seeds;
  for (int activation = 0; activation < kActivations; ++activation) {
    for (const Gate& gate : {Gate{.limit = 0}, Gate{.limit = 0.02f, .up_offset = 1.0f}}) {
      Gate one = gate;
      one.activation = static_cast<Activation>(activation);
      if (one.activation == Activation::kSilu && one.limit > 0) one.alpha = 1.702f;
      Scene scene(seeds.random()());
      ExpectSameBits(
          scene, MakeGated(scene, Fp8Case(GroupLayout::kOffsets, 512, 512, {40, 100, 7}), one).op);
    }
  }
}

// Rows of NaN, of an infinite product, of zeros and of products too small for a plain division.
TEST_F(GateGpuTest, SameBitsAsApartOfNumbersThatAreNone) {
  for (const float alpha : {1.0f, 1e-4f, 1e-20f, 1e-37f, 3e38f}) {
    Scene scene;
    GroupedScene grouped = MakeGated(scene, Fp8Case(GroupLayout::kOffsets, 512, 256, {20, 90}), {});
    GroupedMatmulOp& op = grouped.op;
    op.alpha = alpha;
    const int64_t rows = op.a.values.shape[0];
    for (int64_t row = 0; row < rows; row += 7) {
      scene.Set(op.a.values, {row, row % 256}, std::nan(""));
      if (row + 1 < rows) scene.Set(*op.a.scales, {row + 1, 1}, INFINITY);
      if (row + 2 >= rows) continue;
      for (int64_t i = 0; i < 256; ++i) scene.Set(op.a.values, {row + 2, i}, 0);
    }
    ExpectSameBits(scene, op);
  }
}

TEST_F(GateGpuTest, SameBitsInEveryRun) {
  Scene scene;
  const GroupedScene grouped = MakeGated(
      scene, Fp8Case(GroupLayout::kOffsets, 1024, 1024, {64, 3, 200, 0, 129, 1}), {.period = 0});
  const Outcome first = scene.Run(*fused_, Op(grouped.op));
  for (int run = 1; run < kRuns; ++run) {
    const Outcome again = scene.Run(*fused_, Op(grouped.op));
    EXPECT_TRUE(first.slots == again.slots) << "run " << run;
  }
}

MatmulOp MakeGatedMatmul(Scene& scene, const MatmulCase& c, const Gate& gate) {
  MatmulOp op = MakeMatmul(scene, c);
  Dims half = op.d.shape;
  if (!gate.alone) half[half.rank - 1] /= 2;
  op.d = scene.Poisoned(DType::kE4M3, half);
  op.d_scales = scene.Poisoned(DType::kF32, ScaleShape(half, ScaleGranularity::kBlock1x128));
  op.alpha = 1e-4f;
  op.gate = gate;
  op.kernel = cuda::kFp8GateName;
  return op;
}

MatmulCase Fp8Matmul(int64_t m, int64_t n, int64_t k, int64_t batch = 0, bool shared_b = false) {
  return {.m = m,
          .n = n,
          .k = k,
          .batch = batch,
          .shared_b = shared_b,
          .dtype = DType::kE4M3,
          .out = DType::kBF16,
          .a_granularity = ScaleGranularity::kBlock1x128,
          .b_granularity = ScaleGranularity::kBlock128x128};
}

// A dense matmul's rows are those of one group, or of the items of a batch.
TEST_F(GateGpuTest, ADenseMatmulHasTheBitsOfAGroup) {
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 256, 128},
                                {16, 512, 1424},
                                {33, 256, 256},
                                {64, 1536, 272},
                                {65, 256, 512},
                                {300, 512, 256}}) {
    for (const int64_t period : {0, 128}) {
      Scene scene;
      const MatmulOp op = MakeGatedMatmul(scene, Fp8Matmul(m, n, k), {.period = period});
      GroupedMatmulOp grouped;
      grouped.a = op.a;
      grouped.b = op.b;
      for (TensorRef* b : {&grouped.b.values, &*grouped.b.scales}) {
        const Dims rows = b->shape, strides = b->strides;
        b->shape = MakeDims({1, rows[0], rows[1]});
        b->strides = MakeDims({rows[0] * strides[0], strides[0], strides[1]});
      }
      grouped.groups = scene.Numbers(MakeDims({2}), {0, static_cast<int32_t>(m)});
      grouped.d = op.d;
      grouped.d_scales = op.d_scales;
      grouped.gate = op.gate;
      grouped.alpha = op.alpha;
      const Outcome dense = scene.Run(*fused_, Op(op));
      const Outcome group = scene.Run(*apart_, Op(grouped));
      EXPECT_EQ(dense.kernels[0], cuda::kFp8GateName);
      EXPECT_TRUE(dense.slots == group.slots) << m << "x" << n << "x" << k << " period " << period;
    }
  }
}

// Few and many rows; whole tiles, halves and parts of them. The product's kernel sums undivided k.
TEST_F(GateGpuTest, GatesAloneHaveTheBitsOfAProductAndGated) {
  Scene seeds;
  const std::string apart = cuda::Name(cuda::AllVariants()[0]);
  int activation = 0;
  for (const int64_t m : {1, 12, 33, 64, 65, 300, 1000}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{256, 128},
                               {128, 512},
                               {1152, 256},
                               {784, 1424},
                               {1040, 384}}) {
      Scene scene(seeds.random()());
      Gate gate{.activation = static_cast<Activation>(activation++ % kActivations), .alone = true};
      MatmulOp op = MakeGatedMatmul(scene, Fp8Matmul(m, n, k), gate);
      op.bias = scene.Random(DType::kF32, MakeDims({n}));
      op.alpha = 1.0f;
      for (const float limit : {0.0f, 0.5f}) {
        op.gate->limit = limit;
        const Outcome fused = scene.Run(*fused_, Op(op));
        EXPECT_EQ(fused.kernels[0], cuda::kFp8GateName);
        MatmulOp behind = op;
        behind.kernel = apart;
        const Outcome two = scene.Run(*fused_, Op(behind));
        EXPECT_EQ(two.kernels[0], apart);
        EXPECT_TRUE(fused.slots == two.slots) << m << "x" << n << "x" << k << " limit " << limit;
        op.bias.reset();
      }
    }
    ++activation;  // there are as many shapes as activations: each comes with others next time
  }
}

TEST_F(GateGpuTest, BatchesHaveTheBitsOfTheirItems) {
  for (const bool shared_b : {false, true}) {
    for (const int64_t m : {12, 50, 129}) {
      Scene scene;
      const MatmulOp batch = MakeGatedMatmul(scene, Fp8Matmul(m, 512, 384, 3, shared_b), {});
      std::vector<Op> items;
      for (int64_t i = 0; i < 3; ++i) {
        MatmulOp item = batch;
        const auto take = [i](TensorRef& tensor) {
          if (tensor.shape.rank != 3) return;
          tensor.offset_bytes += i * tensor.strides[0] * SizeBytes(tensor.dtype);
          tensor.shape = MakeDims({tensor.shape[1], tensor.shape[2]});
          tensor.strides = MakeDims({tensor.strides[1], tensor.strides[2]});
        };
        for (TensorRef* tensor : {&item.a.values, &*item.a.scales, &item.b.values, &*item.b.scales,
                                  &item.d, &*item.d_scales}) {
          take(*tensor);
        }
        items.emplace_back(item);
      }
      const Outcome whole = scene.Run(*fused_, Op(batch));
      const Outcome apart = scene.Run(*fused_, items);
      EXPECT_TRUE(whole.slots == apart.slots) << "m=" << m << " shared " << shared_b;
    }
  }
}

// What the fused kernels do not take goes the other way, and tells so by its kernel.
TEST_F(GateGpuTest, TheRestIsGatedApart) {
  for (const auto& [n, period] : {std::pair<int64_t, int64_t>{384, 0}, {512, 1}, {512, 64}}) {
    Scene scene;
    const GroupedScene grouped =
        MakeGated(scene, Fp8Case(GroupLayout::kOffsets, n, 256, {20, 90}), {.period = period});
    EXPECT_EQ(scene.Run(*fused_, Op(grouped.op)).kernels[0], cuda::kFp8GroupedName);
    GroupedMatmulOp forced = grouped.op;
    forced.kernel = cuda::kFp8GateName;
    const Op op(forced);
    const auto refused = scene.TryRun(*fused_, absl::MakeSpan(&op, 1));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented) << refused.status();
    EXPECT_NE(refused.status().message().find("multiple of 128"), std::string::npos);
  }
}

}  // namespace
}  // namespace gemmd::kernels::contract
