// Measuring kernels on the device: what is measured decides for programs compiled afterwards, and
// the same bits stay where a program asks for that.

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "kernels/shape_trial.h"
#include "tests/kernels/cuda/backend_fixture.h"

namespace gemmd::kernels::cuda {
namespace {

constexpr TuneShape kShape = {.m = 64, .n = 4096, .k = 7168};

class TuneGpuTest : public BackendGpuTest {
 protected:
  absl::StatusOr<TunedShape> Tune(const TuneShape& shape, const TuneOptions& options = {}) {
    const auto stream = backend_->CreateStream({});
    return TuneOneShape(*backend_, shape, options,
                        [&](std::shared_ptr<const Program> program,
                            Bindings bindings) -> absl::StatusOr<LaunchResult> {
                          LaunchResult result =
                              Run(*stream, std::move(program), std::move(bindings));
                          if (!result.status.ok()) return result.status;
                          return result;
                        });
  }
  std::shared_ptr<const Program> Compile(bool deterministic = false) {
    MatmulOp op = TrialMatmul(kShape);
    op.deterministic = deterministic;
    return *backend_->Compile({Op(op)});
  }
  // Makes the slowest of what was measured the fastest: another kernel than the one in force.
  void ChooseTheLast(TunedShape tuned) {
    std::reverse(tuned.times.begin(), tuned.times.end());
    for (size_t i = 0; i < tuned.times.size(); ++i) tuned.times[i].seconds = 1e-6 * (i + 1);
    ASSERT_TRUE(backend_->tuner()->Keep({{tuned.shape, tuned.times}}).ok());
  }
};

TEST_F(TuneGpuTest, TheTimesAreThoseOfColdKernels) {
  const auto tuned = Tune(kShape);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  ASSERT_GE(tuned->times.size(), 2);
  // 29 MB of weights: no Hopper reads them in less than 5 us, and none takes a millisecond.
  EXPECT_GT(tuned->times[0].seconds, 5e-6);
  EXPECT_LT(tuned->times[0].seconds, 1e-3);
  EXPECT_GT(tuned->seconds_before, 0);
  for (const KernelTime& time : tuned->times) {
    RecordProperty(time.kernel, std::to_string(time.seconds * 1e6));
  }
}

TEST_F(TuneGpuTest, WhatIsKeptDecidesForProgramsCompiledAfterwards) {
  const auto before = Compile();
  const auto tuned = Tune(kShape);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  ChooseTheLast(*tuned);
  const auto after = Compile();
  EXPECT_EQ(after->steps()[0].choice.kernel, tuned->times.back().kernel);
  EXPECT_EQ(after->steps()[0].choice.reason, ChoiceReason::kTuned);
  ASSERT_EQ(after->tunable().size(), 1);
  EXPECT_EQ(after->tunable()[0].shape, kShape);
  EXPECT_EQ(Compile(/*deterministic=*/true)->steps()[0].choice.kernel,
            before->steps()[0].choice.kernel);
}

TEST_F(TuneGpuTest, ADeterministicProgramKeepsItsBits) {
  const auto operands = [&](int64_t bytes, uint64_t seed) {
    auto memory = Allocate(bytes);
    std::vector<std::byte> values = RandomBytes(bytes, seed);
    for (std::byte& value : values) value &= std::byte{0xb7};  // no NaN, nothing large
    EXPECT_TRUE(memory->CopyIn(0, values).ok());
    return memory;
  };
  const auto a = operands(64 * 7168, 1), b = operands(int64_t{4096} * 7168, 2);
  std::vector<float> ones(64 * 64, 0.125f);
  const auto scales = Allocate(static_cast<int64_t>(ones.size()) * 4);
  ASSERT_TRUE(scales
                  ->CopyIn(0, absl::MakeConstSpan(reinterpret_cast<std::byte*>(ones.data()),
                                                  ones.size() * 4))
                  .ok());
  const auto d = Allocate(64 * 4096 * 2);
  const auto stream = backend_->CreateStream({});
  const auto bits = [&] {
    const auto result = Run(
        *stream, Compile(/*deterministic=*/true),
        {{a->address(), scales->address(), b->address(), scales->address(), d->address()}, {}, {}});
    EXPECT_TRUE(result.status.ok()) << result.status;
    return Contents(*d);
  };
  const std::vector<std::byte> before = bits();
  const auto tuned = Tune(kShape);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  ChooseTheLast(*tuned);
  for (int run = 0; run < 100; ++run) ASSERT_TRUE(bits() == before) << "run " << run;
}

TEST_F(TuneGpuTest, AnotherBackendTakesWhatThisOneExported) {
  const auto tuned = Tune(kShape);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  ChooseTheLast(*tuned);
  const std::string text = backend_->tuner()->Export("2026-11-24");
  backend_.reset();
  auto restarted = CreateCudaBackend({.memory_bytes = kLimit, .self_test = false});
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  backend_ = *std::move(restarted);
  const auto imported = backend_->tuner()->Import(text);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->skipped, "");
  EXPECT_EQ(Compile()->steps()[0].choice.kernel, tuned->times.back().kernel);
}

TEST_F(TuneGpuTest, RefusesWhatTakesTooLongOrTooMuch) {
  EXPECT_EQ(Tune({.m = 16384, .n = 1 << 20, .k = 128}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Tune({.m = 8, .n = 4096, .k = 7170}).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
