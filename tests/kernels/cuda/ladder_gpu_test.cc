// The ladder on a device: each rung forced by name through the backend, on what it takes.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ladder/ladder.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/matmul_check.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using contract::MatmulCase;
using contract::Outcome;
using contract::Scene;
using ladder::kNumRungs;
using ladder::kRungs;
using testing::HasSubstr;

class LadderGpuTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = kLimit});
    ASSERT_TRUE(backend.ok()) << backend.status();
    executor_ = contract::MakeBackendExecutor(*std::move(backend));
  }

  const ladder::Rung& rung() const { return kRungs[GetParam()]; }

  MatmulOp Make(Scene& scene, int64_t m, int64_t n, int64_t k) const {
    MatmulCase c{m, n, k};
    c.dtype = rung().is_fp8 ? DType::kE4M3 : DType::kF16;
    c.out = rung().is_fp8 ? DType::kBF16 : DType::kF16;
    if (rung().is_fp8) {
      c.a_granularity = ScaleGranularity::kBlock1x128;
      c.b_granularity = ScaleGranularity::kBlock128x128;
    }
    MatmulOp op = MakeMatmul(scene, c);
    op.kernel = rung().name;
    return op;
  }
  // Runs `op` by this rung and holds D and what lies beside it against float64 and poison.
  void Check(Scene& scene, const MatmulOp& op) {
    const Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
    EXPECT_EQ(outcome.kernels, std::vector<std::string>{rung().name});
  }

  // Shapes that the rung takes: one tile, many of k, many of D, edges.
  std::vector<std::array<int64_t, 3>> Shapes() const {
    std::vector<std::array<int64_t, 3>> shapes = {{128, 128, 64}};
    if (rung().one_k_tile) return shapes;
    for (int64_t k : {128, 192, 256, 320, 1024, 4096}) shapes.push_back({128, 128, k});
    if (rung().one_tile) return shapes;
    shapes.insert(shapes.end(), {{256, 128, 64}, {128, 384, 128}, {640, 512, 576}});
    // More tiles than SMs: a persistent CTA takes several, the last time round not all do.
    shapes.push_back({2176, 2304, 128});
    if (!rung().uses_tma) return shapes;
    for (int64_t m : {1, 63, 129, 300}) {
      for (int64_t n : {8, 120, 136, 520}) {
        for (int64_t k : {16, 144, 1008}) shapes.push_back({m, n, k});
      }
    }
    shapes.push_back({1999, 2120, 80});
    return shapes;
  }

  std::unique_ptr<contract::Executor> executor_;
};

TEST_P(LadderGpuTest, IsRightOnWhatItTakes) {
  Scene seed_scene;
  for (const auto& [m, n, k] : Shapes()) {
    SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k);
    Scene scene(seed_scene.random()());
    Check(scene, Make(scene, m, n, k));
  }
}

// Views of larger matrices: what lies between the rows is neither read for them nor written.
TEST_P(LadderGpuTest, TakesRowsThatLieApart) {
  Scene scene;
  const int64_t m = 128, n = 128, k = 64;
  MatmulOp op = Make(scene, m, n, k);
  op.a.values = scene.Random(op.a.values.dtype, MakeDims({m, k + 16}));
  op.b.values = scene.Random(op.b.values.dtype, MakeDims({n, k + 32}));
  op.d = scene.Poisoned(op.d.dtype, MakeDims({m, n + 64}));
  op.a.values.shape = MakeDims({m, k});
  op.b.values.shape = MakeDims({n, k});
  op.d.shape = MakeDims({m, n});
  Check(scene, op);
}

TEST_P(LadderGpuTest, AppliesAlpha) {
  for (float alpha : {-0.25f, 0.0f}) {
    Scene scene;
    MatmulOp op = Make(scene, 128, 128, 64);
    op.alpha *= alpha;
    Check(scene, op);
  }
}

TEST_P(LadderGpuTest, GivesTheSameBitsEveryTime) {
  Scene scene;
  const auto [m, n, k] = Shapes().back();
  const MatmulOp op = Make(scene, m, n, k);
  const Outcome first = scene.Run(*executor_, Op(op));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(scene.Run(*executor_, Op(op)).slots == first.slots) << "run " << i;
  }
}

TEST_P(LadderGpuTest, RefusesOddOnesWithTheReason) {
  Scene scene;
  const auto refusal = [&](const MatmulOp& op) {
    const std::vector<Op> ops = {op};
    const absl::Status status = scene.TryRun(*executor_, ops).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(rung().name));
    return std::string(status.message());
  };
  // Rows of 131 elements start at no multiples of 16 bytes.
  const std::string odd = refusal(Make(scene, 128, 128, 131));
  EXPECT_THAT(odd, HasSubstr(rung().uses_tma ? "multiples of 16" : "k=131"));
  MatmulOp biased = Make(scene, 128, 128, 64);
  biased.bias = scene.Random(DType::kF32, MakeDims({128}));
  EXPECT_THAT(refusal(biased), HasSubstr("bias"));
  MatmulOp wide = Make(scene, 128, 128, 64);
  wide.d = scene.Poisoned(DType::kF32, MakeDims({128, 128}));
  EXPECT_THAT(refusal(wide), HasSubstr("d is f32"));
}

TEST_P(LadderGpuTest, IsNobodysChoice) {
  Scene scene;
  MatmulOp op = Make(scene, 128, 128, 64);
  op.kernel.clear();
  const Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
  EXPECT_THAT(outcome.kernels.at(0), testing::Not(testing::StartsWith(kLadderFamily)));
}

INSTANTIATE_TEST_SUITE_P(Rung, LadderGpuTest, testing::Range(0, kNumRungs), [](const auto& info) {
  return std::string(kRungs[info.param].name).substr(std::string("sm90_ladder_").size());
});

}  // namespace
}  // namespace gemmd::kernels::cuda
