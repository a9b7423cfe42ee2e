// TypesGpuTest: one operand kind's matmuls by the TMA families, through the backend, on a device.

#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/matmul/reference.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/matmul/legality.h"
#include "kernels/cuda/matmul/operand_copies.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "kernels/cuda/sm90/float/sm90_f32_configs.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/matmul_check.h"
#include "tests/kernels/cuda/backend_fixture.h"
#include "tests/kernels/cuda/device_buffer.h"

namespace gemmd::kernels::cuda {

using contract::MatmulCase;
using contract::Outcome;
using contract::Placement;
using contract::Scene;
using testing::StartsWith;

struct Kind {
  Mma mma;
  const char* family;
};

inline constexpr Kind k16BitKinds[] = {{Mma::kBf16, "sm90_bf16_"}, {Mma::kF16, "sm90_f16_"}};
inline std::string NameOfType(const testing::TestParamInfo<Kind>& info) {
  return std::string(Name(KindOf(info.param.mma).operand));
}

class TypesGpuTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    GEMMD_REQUIRE_DEVICE();
    auto backend = CreateCudaBackend({.memory_bytes = kLimit});
    ASSERT_TRUE(backend.ok()) << backend.status();
    executor_ = contract::MakeBackendExecutor(*std::move(backend));
  }

  DType dtype() const { return KindOf(GetParam().mma).operand; }
  bool integers() const { return dtype() == DType::kI8; }
  // A multiple of 16 bytes at or above `k`.
  int64_t Aligned(int64_t k) const {
    const int64_t step = 16 / SizeBytes(dtype());
    return (k + step - 1) / step * step;
  }
  MatmulCase Shape(int64_t m, int64_t n, int64_t k, DType out = DType::kBF16) const {
    MatmulCase c{m, n, k};
    c.dtype = dtype();
    c.out = out;
    if (KindOf(GetParam().mma).scales == KindScales::kBlocks) {
      c.a_granularity = ScaleGranularity::kBlock1x128;
      c.b_granularity = ScaleGranularity::kBlock128x128;
    }
    return c;
  }
  // Runs and checks it; a kernel of the type's families must have been chosen.
  void Check(Scene& scene, const MatmulOp& op) {
    const Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_THAT(outcome.kernels[0], StartsWith(GetParam().family));
  }
  // Every kernel that can, of those that are `wanted`, on one op, held against one reference. INT8
  // without scales is exact.
  using Wanted = bool (*)(const GemmVariant&);
  void CheckEveryKernel(
      Scene& scene, MatmulOp op, Wanted wanted = [](const GemmVariant&) { return true; },
      int least_served = 11) {
    const bool exact =
        integers() && !op.a.scales && !op.b.scales && op.d.dtype == DType::kF32 && op.alpha == 1;
    std::vector<double> expected = ReferenceMatmul(op, scene.Reference());
    if (exact) {
      for (double& value : expected) value = static_cast<float>(value);
    }
    // FP8's tensor cores keep about 14 bits of a sum. FP32's sums round as often as they add.
    const double single = dtype() == DType::kE4M3 ? 1e-3 : dtype() == DType::kF32 ? 5e-7 : 1e-5;
    const double limit = exact ? 0 : op.d.dtype == DType::kF32 ? single : 5e-3;
    // An activation's steepest slope is little above 1, and its results may be next to nothing:
    // what it was given says what is allowed.
    MatmulOp given = op;
    given.activation = Activation::kNone;
    double norm = 0;
    for (double value : op.activation == Activation::kNone
                            ? expected
                            : ReferenceMatmul(given, scene.Reference())) {
      norm += value * value;
    }
    const MatmulProblem problem = ProblemOf(op);
    int served = 0;
    for (const GemmVariant& variant : AllVariants()) {
      if (variant.shape().mma != GetParam().mma || !WhyNot(variant, Readable(problem)).empty()) {
        continue;
      }
      if (!wanted(variant)) continue;
      op.kernel = Name(variant);
      const Outcome outcome = scene.Run(*executor_, Op(op));
      ExpectOnlyElementsWritten(scene, outcome, op.d);
      const std::vector<double> actual = Values(outcome, op.d);
      double wrong = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        wrong += (actual[i] - expected[i]) * (actual[i] - expected[i]);
      }
      ASSERT_LE(std::sqrt(wrong), limit * std::sqrt(norm))
          << op.kernel << " on " << ToString(problem) << ", seed " << scene.seed();
      ++served;
    }
    const int configs = static_cast<int>(std::size(kF32TiledConfigs));
    EXPECT_GE(served, dtype() == DType::kF32 ? std::min(least_served, configs) : least_served)
        << ToString(problem);
  }

  std::unique_ptr<contract::Executor> executor_;
};

}  // namespace gemmd::kernels::cuda
