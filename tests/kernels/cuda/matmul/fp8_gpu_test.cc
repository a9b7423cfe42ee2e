// The TMA families through the backend, on a device.

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/legality.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/matmul_check.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::MatmulCase;
using contract::Placement;
using contract::Scene;
using testing::StartsWith;

// FP8 with block scales, which the contract suite hands to the TMA families only now and then.
class Fp8GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = kLimit});
    ASSERT_TRUE(backend.ok()) << backend.status();
    executor_ = contract::MakeBackendExecutor(*std::move(backend));
  }

  static MatmulCase Shape(int64_t m, int64_t n, int64_t k) {
    MatmulCase c{m, n, k};
    c.dtype = DType::kE4M3;
    c.out = DType::kBF16;
    c.a_granularity = ScaleGranularity::kBlock1x128;
    c.b_granularity = ScaleGranularity::kBlock128x128;
    return c;
  }
  // Runs and checks it; a kernel of the TMA families must have been chosen.
  void Check(Scene& scene, const MatmulOp& op) {
    const contract::Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_THAT(outcome.kernels[0], StartsWith("sm90_fp8_"));
  }

  std::unique_ptr<contract::Executor> executor_;
};

TEST_F(Fp8GpuTest, TakesScalesHoweverTheyLie) {
  Scene seed_scene;
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 256, 512},
                                {7, 576, 1040},
                                {64, 130, 128},
                                {60, 300, 512},
                                {129, 257, 400},
                                {512, 768, 1024}}) {
    for (Placement a : contract::kPlacements) {
      for (Placement b : contract::kPlacements) {
        Scene scene(seed_scene.random()());
        MatmulOp op = MakeMatmul(scene, Shape(m, n, k));
        op.a.scales = scene.Scales(op.a.values.shape, op.a.granularity, a);
        op.b.scales = scene.Scales(op.b.values.shape, op.b.granularity, b);
        SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " scales "
                                        << contract::Name(a) << ", " << contract::Name(b));
        Check(scene, op);
      }
    }
  }
}

TEST_F(Fp8GpuTest, MultipliesBatches) {
  Scene seed_scene;
  for (bool shared_b : {false, true}) {
    for (Placement scales : contract::kPlacements) {
      for (int64_t m : {1, 20, 130}) {
        Scene scene(seed_scene.random()());
        MatmulCase c = Shape(m, 200, 384);
        c.batch = 3;
        c.shared_b = shared_b;
        MatmulOp op = MakeMatmul(scene, c);
        op.a.scales = scene.Scales(op.a.values.shape, op.a.granularity, scales);
        op.b.scales = scene.Scales(op.b.values.shape, op.b.granularity, scales);
        Check(scene, op);
      }
    }
  }
}

TEST_F(Fp8GpuTest, AppliesTheEpilogue) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int flags = 0; flags < 8; ++flags) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(70, 330, 640);
      c.out = out;
      MatmulOp op = MakeMatmul(scene, c);
      op.alpha *= -0.5f;
      if (flags & 1) {
        op.c = scene.Random(out, op.d.shape, Placement::kPadded);
        op.beta = 1.25f;
      }
      if (flags & 2) op.bias = scene.Random(out, MakeDims({330}));
      if (flags & 4) op.activation = static_cast<Activation>(scene.Between(1, kActivations - 1));
      Check(scene, op);
    }
  }
}

// By a second kernel in place, whose 16-byte accesses ask for aligned rows.
TEST_F(Fp8GpuTest, ActivatesResultsHoweverTheyLie) {
  Scene seed_scene;
  for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int activation = 1; activation < kActivations; ++activation) {
      for (const auto& [m, n] : {std::pair{1, 8}, {7, 130}, {64, 4096}, {33, 257}}) {
        for (Placement d : {Placement::kDense, Placement::kPadded}) {
          Scene scene(seed_scene.random()());
          MatmulCase c = Shape(m, n, 256);
          c.out = out;
          c.d = d;
          MatmulOp op = MakeMatmul(scene, c);
          op.alpha = std::min(op.alpha, 0x1p-14f);  // F16 has its own, beyond which squares vanish
          op.activation = static_cast<Activation>(activation);
          Check(scene, op);
        }
      }
    }
  }
}

std::vector<std::string> StreamKernels() {
  std::vector<std::string> names;
  for (const GemmVariant& variant : AllVariants()) {
    if (variant.streams_k() && variant.shape().mma == Mma::kFp8Block)
      names.push_back(Name(variant));
  }
  return names;
}

// More tiles than SMs, whose sums are there first; parts of tiles; a single tile's k among many
// CTAs; teams whose last band has fewer tiles than they have CTAs; batches; k that ends in a block.
TEST_F(Fp8GpuTest, CtasThatMeetInATileAddUpItsSums) {
  struct {
    int64_t m, n, k, batch;
  } const shapes[] = {{1290, 4100, 2192, 1}, {549, 1300, 2064, 1}, {17, 40, 8208, 1},
                      {2310, 260, 2048, 1},  {130, 3072, 4112, 1}, {300, 500, 2176, 2}};
  ASSERT_FALSE(StreamKernels().empty());
  Scene seed_scene;
  for (const auto& shape : shapes) {
    for (DType out : {DType::kF32, DType::kBF16}) {
      Scene scene(seed_scene.random()());
      MatmulCase c = Shape(shape.m, shape.n, shape.k);
      c.out = out;
      c.batch = shape.batch;
      MatmulOp op = MakeMatmul(scene, c);
      if (shape.m == 549) {
        op.c = scene.Random(out, op.d.shape, Placement::kPadded);
        op.beta = 1.25f;
        op.bias = scene.Random(out, MakeDims({shape.n}));
      }
      for (const std::string& kernel : StreamKernels()) {
        op.kernel = kernel;
        SCOPED_TRACE(testing::Message() << shape.m << "x" << shape.n << "x" << shape.k);
        EXPECT_EQ(ExpectMatchesReference(*executor_, scene, op).kernels,
                  std::vector<std::string>{kernel});
      }
    }
  }
}

TEST_F(Fp8GpuTest, SumsThatCrossGiveTheSameBitsEveryTime) {
  Scene scene;
  for (const auto& [m, n, k] :
       {std::tuple<int64_t, int64_t, int64_t>{549, 2560, 4112}, {1290, 4100, 2192}}) {
    MatmulOp op = MakeMatmul(scene, Shape(m, n, k));
    for (const std::string& kernel : StreamKernels()) {
      op.kernel = kernel;
      const contract::Outcome first = scene.Run(*executor_, Op(op));
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(scene.Run(*executor_, Op(op)).slots == first.slots) << kernel;
      }
    }
  }
}

TEST_F(Fp8GpuTest, FallsBackWhereTheFamiliesCannotServe) {
  Scene scene;
  MatmulOp op = MakeMatmul(scene, Shape(70, 330, 640));
  op.c = scene.Random(DType::kBF16, op.d.shape, Placement::kTransposed);
  op.beta = 1;
  const contract::Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
  EXPECT_EQ(outcome.kernels, std::vector<std::string>{"sm90_any_gemm"});
}

// Each matmul reads what the op before it wrote, and kernels start under each other's ends.
TEST_F(Fp8GpuTest, RunsChainsInOrder) {
  Scene scene;
  constexpr int64_t kM = 96, kN = 512;
  const Dims shape = MakeDims({kM, kN});
  const TensorRef x = scene.Random(DType::kBF16, shape);
  MatmulOp matmul = MakeMatmul(scene, Shape(kM, kN, kN));
  matmul.a.scales->strides = MakeDims({1, kM});  // its slot has room for 96 x 4 either way
  const QuantizeOp quantize{x, matmul.a.values, *matmul.a.scales, ScaleGranularity::kBlock1x128};
  matmul.d = x;
  matmul.alpha = 1e-3f;
  std::vector<Op> ops;
  for (int i = 0; i < 12; ++i) ops.insert(ops.end(), {Op(quantize), Op(matmul)});
  const contract::Outcome all = scene.Run(*executor_, ops);
  Scene by_hand(scene);
  for (const Op& op : ops) by_hand.Replace(by_hand.Run(*executor_, op));
  EXPECT_TRUE(all.slots == by_hand.slots());
}

// gate_up, silu(gate) * up and down, layer behind layer: each kernel starts under the end of the
// one whose results it reads.
TEST_F(Fp8GpuTest, RunsFeedForwardLayersInOrder) {
  Scene scene;
  constexpr int64_t kM = 32, kHidden = 512, kInner = 768;
  MatmulOp gate_up = MakeMatmul(scene, Shape(kM, 2 * kInner, kHidden));
  gate_up.a.scales->strides = MakeDims({1, kM});
  gate_up.alpha = 0x1p-15f;
  MatmulOp down = MakeMatmul(scene, Shape(kM, kHidden, kInner));
  down.a.scales->strides = MakeDims({1, kM});
  down.alpha = 0x1p-8f;
  const QuantizeOp quantize{scene.Random(DType::kBF16, MakeDims({kM, kHidden})), gate_up.a.values,
                            *gate_up.a.scales, ScaleGranularity::kBlock1x128};
  down.d = quantize.src;
  GatedOp gated{gate_up.d, down.a.values, down.a.scales};
  std::vector<Op> ops;
  for (int i = 0; i < 8; ++i) {
    gated.period = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 128;
    ops.insert(ops.end(), {Op(quantize), Op(gate_up), Op(gated), Op(down)});
  }
  const contract::Outcome all = scene.Run(*executor_, ops);
  Scene by_hand(scene);
  for (const Op& op : ops) by_hand.Replace(by_hand.Run(*executor_, op));
  EXPECT_TRUE(all.slots == by_hand.slots());
}

// Kernels start under each other's ends, but read no weights before they are written.
TEST_F(Fp8GpuTest, WaitsForWeightsThatTheOpBeforeWrites) {
  Scene scene;
  constexpr int64_t kM = 64, kN = 4096, kK = 2048;
  std::vector<MatmulOp> fresh;  // each with weights of its own
  for (int i = 0; i < 4; ++i) fresh.push_back(MakeMatmul(scene, Shape(kM, kN, kK)));
  MatmulOp again = fresh[0];  // all of their weights through one buffer
  again.a.scales->strides = MakeDims({1, kM});
  again.b.values = scene.Poisoned(DType::kE4M3, MakeDims({kN, kK}));
  again.b.scales = scene.Poisoned(DType::kF32, fresh[0].b.scales->shape);
  std::vector<Op> ops;
  for (MatmulOp& op : fresh) {
    op.a = again.a;
    op.alpha = again.alpha;
    again.d = scene.Poisoned(DType::kBF16, op.d.shape);
    const CopyOp values{op.b.values, again.b.values}, scales{*op.b.scales, *again.b.scales};
    ops.insert(ops.end(), {Op(op), Op(scales), Op(values), Op(again)});
    again.d = scene.Poisoned(DType::kBF16, op.d.shape);
    ops.insert(ops.end(), {Op(values), Op(scales), Op(again)});
  }
  const contract::Outcome outcome = scene.Run(*executor_, ops);
  for (size_t i = 0; i < fresh.size(); ++i) {
    const auto& own = std::get<MatmulOp>(ops[7 * i]);
    for (size_t later : {7 * i + 3, 7 * i + 6}) {
      const auto& through = std::get<MatmulOp>(ops[later]);
      EXPECT_TRUE(outcome.slots[own.d.slot] == outcome.slots[through.d.slot]) << "op " << later;
    }
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
