// The self-test on a device: a sound one passes whole, a kernel that is not is kept out.

#include <cstdio>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend_for_test.h"
#include "kernels/cuda/grouped/grouped_self_test.h"
#include "kernels/cuda/grouped/k_grouped.h"
#include "kernels/cuda/ops/any_gemm.h"
#include "kernels/cuda/sm90/gradient.h"
#include "kernels/cuda/sm90/launch/gate_launch.h"
#include "kernels/cuda/sm90/launch/grouped.h"
#include "kernels/grouped_problem.h"
#include "kernels/k_grouped.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class SelfTestGpuTest : public testing::Test {
 protected:
  void SetUp() override { GEMMD_REQUIRE_DEVICE(); }

  static std::unique_ptr<Backend> Make(std::vector<std::string> spoiled, bool self_test = true,
                                       std::vector<std::string> disabled = {}) {
    auto backend = CreateCudaBackendForTest({.memory_bytes = int64_t{1} << 30,
                                             .disabled_kernels = std::move(disabled),
                                             .self_test = self_test},
                                            {.spoiled_kernels = std::move(spoiled)});
    EXPECT_TRUE(backend.ok()) << backend.status();
    return *std::move(backend);
  }
  static std::vector<std::string> Quarantined(const Backend& backend) {
    std::vector<std::string> names;
    for (const KernelInfo& kernel : backend.kernels()) {
      if (!kernel.quarantined) continue;
      names.push_back(kernel.name);
      EXPECT_THAT(kernel.why_off, HasSubstr("self-test failed: ")) << kernel.name;
    }
    return names;
  }
  static MatmulOp Fp8(int64_t m) {
    const auto dense = [](int slot, DType dtype, const Dims& shape) {
      return TensorRef{slot, 0, dtype, shape, RowMajorStrides(shape)};
    };
    MatmulOp op;
    op.a = {dense(0, DType::kE4M3, MakeDims({m, 1024})), ScaleGranularity::kBlock1x128,
            dense(1, DType::kF32, MakeDims({m, 8}))};
    op.b = {dense(2, DType::kE4M3, MakeDims({512, 1024})), ScaleGranularity::kBlock128x128,
            dense(3, DType::kF32, MakeDims({4, 8}))};
    op.d = dense(4, DType::kBF16, MakeDims({m, 512}));
    return op;
  }
};

TEST_F(SelfTestGpuTest, EveryKernelPasses) {
  const absl::Time begin = absl::Now();
  const auto without = Make({}, /*self_test=*/false);
  const absl::Time between = absl::Now();
  const auto with = Make({});
  std::printf(
      "%zu kernels; creating the backend took %.0f ms without a self-test, then %.0f ms "
      "with one\n",
      with->kernels().size(), absl::ToDoubleMilliseconds(between - begin),
      absl::ToDoubleMilliseconds(absl::Now() - between));
  for (const KernelInfo& kernel : with->kernels()) {
    EXPECT_EQ(kernel.why_off, "") << kernel.name;
  }
}

TEST_F(SelfTestGpuTest, AKernelWithWrongResultsIsKeptOut) {
  const Op op = Fp8(64);
  const std::string chosen((*Make({})->Compile({op}))->steps()[0].choice.kernel);
  ASSERT_THAT(chosen, StartsWith("sm90_fp8_"));
  const auto backend = Make({chosen});
  EXPECT_THAT(Quarantined(*backend), UnorderedElementsAre(chosen));
  const auto program = backend->Compile({op});
  ASSERT_TRUE(program.ok()) << program.status();
  const std::string next((*program)->steps()[0].choice.kernel);
  EXPECT_NE(next, chosen);
  EXPECT_THAT(next, StartsWith("sm90_fp8_"));
  for (const Candidate& candidate : backend->Explain(ProblemOf(std::get<MatmulOp>(op)))) {
    if (candidate.kernel != chosen) continue;
    EXPECT_FALSE(candidate.feasible);
    EXPECT_THAT(candidate.why_not, HasSubstr("quarantined"));
    EXPECT_THAT(candidate.why_not, HasSubstr("1 of 14400 elements are wrong"));
  }
  MatmulOp forced = Fp8(64);
  forced.kernel = chosen;
  const absl::Status refused = backend->Compile({Op(forced)}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("quarantined"));
}

TEST_F(SelfTestGpuTest, TheFallbackIsTestedToo) {
  const auto backend = Make({kAnyGemmName});
  EXPECT_THAT(Quarantined(*backend), UnorderedElementsAre(kAnyGemmName));
  EXPECT_TRUE(backend->Compile({Op(Fp8(64))}).ok());
}

TEST_F(SelfTestGpuTest, GroupedKernelsAreTestedToo) {
  const GroupedMatmulOp op = *OpOf({.groups = 4,
                                    .m = 40,
                                    .n = 256,
                                    .k = 512,
                                    .operands = DType::kE4M3,
                                    .out = DType::kBF16,
                                    .a_granularity = ScaleGranularity::kBlock1x128,
                                    .b_granularity = ScaleGranularity::kBlock128x128});
  const auto chosen = [&](const Backend& backend) {
    return std::string(backend.ExplainGrouped(op)[0].kernel);
  };
  EXPECT_EQ(chosen(*Make({})), kFp8GroupedName);
  for (const char* spoiled : {kFp8GroupedName, kAnyGroupedName}) {
    const auto backend = Make({spoiled});
    EXPECT_THAT(Quarantined(*backend), UnorderedElementsAre(spoiled));
    const auto program = backend->Compile({Op(op)});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->steps()[0].choice.kernel, chosen(*backend));
    EXPECT_NE(chosen(*backend), spoiled);
    GroupedMatmulOp forced = op;
    forced.kernel = spoiled;
    EXPECT_FALSE(backend->Compile({Op(forced)}).ok());
  }
}

// Which kernel and which tiles serve a group depends on the others, and nobody is to see it.
TEST_F(SelfTestGpuTest, EveryWayToCutGroupsLeavesTheSameBits) {
  const auto device = TraitsOf(0);
  ASSERT_TRUE(device.ok()) << device.status();
  int compared = 0;
  for (const GroupedTrial& trial : GroupedTrials()) {
    for (const char* kernel : {kFp8GroupedName, kI8BlockGroupedName, kFp8GateName}) {
      if (kernel != kFp8GateName ? kernel != TmaGroupedName(trial.op().a) : !trial.op().gate) {
        continue;
      }
      std::vector<std::byte> first;
      for (const GroupedForm& form : FormsOf(kernel)) {
        if (!Serves(form, trial.op())) continue;
        const auto result = ResultOf(trial, kernel, form, *device);
        ASSERT_TRUE(result.ok()) << result.status();
        if (first.empty()) first = *result;
        EXPECT_TRUE(*result == first) << kernel << ", rows kernel " << static_cast<int>(form.rows)
                                      << ", grain " << form.grain;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 100);
}

TEST_F(SelfTestGpuTest, TheKernelThatGatesIsTestedToo) {
  const GroupedMatmulOp op = *OpOf({.groups = 4,
                                    .m = 40,
                                    .n = 256,
                                    .k = 512,
                                    .operands = DType::kE4M3,
                                    .out = DType::kE4M3,
                                    .a_granularity = ScaleGranularity::kBlock1x128,
                                    .b_granularity = ScaleGranularity::kBlock128x128,
                                    .gate = Gate{}});
  GroupedMatmulOp forced = op;  // so few rows would not choose it
  forced.kernel = kFp8GateName;
  EXPECT_TRUE(Make({})->Compile({Op(forced)}).ok());
  const auto backend = Make({kFp8GateName});
  EXPECT_THAT(Quarantined(*backend), UnorderedElementsAre(kFp8GateName));
  EXPECT_FALSE(backend->Compile({Op(forced)}).ok());
  EXPECT_EQ(backend->ExplainGrouped(op)[0].kernel, kFp8GroupedName);
}

TEST_F(SelfTestGpuTest, KernelsOfGradientsAreTestedToo) {
  const KGroupedMatmulOp op =
      *OpOf(KGroupedProblem{.groups = 4,
                            .m = 256,
                            .n = 128,
                            .k = 1024,
                            .a = DType::kE4M3,
                            .b = DType::kE5M2,
                            .a_granularity = ScaleGranularity::kBlock1x128,
                            .b_granularity = ScaleGranularity::kBlock1x128});
  EXPECT_EQ(Make({})->ExplainKGrouped(op)[0].kernel, kGradientName);
  const auto backend = Make({kGradientName});
  EXPECT_THAT(Quarantined(*backend), UnorderedElementsAre(kGradientName));
  EXPECT_EQ(backend->ExplainKGrouped(op)[0].kernel, kAnyKGroupedName);
}

TEST_F(SelfTestGpuTest, CanBeLeftOut) {
  EXPECT_THAT(Quarantined(*Make({kAnyGemmName}, /*self_test=*/false)), IsEmpty());
}

TEST_F(SelfTestGpuTest, LeavesDisabledKernelsAlone) {
  const auto backend = Make({kAnyGemmName}, /*self_test=*/true, {kAnyGemmName});
  EXPECT_THAT(Quarantined(*backend), IsEmpty());
  for (const KernelInfo& kernel : backend->kernels()) {
    EXPECT_EQ(kernel.why_off.empty(), kernel.name != kAnyGemmName) << kernel.name;
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
