// What compiles into what; needs no device.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/plain_family.h"
#include "kernels/cuda/run/cuda_program.h"

namespace gemmd::kernels::cuda {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::StartsWith;

MatmulOp Fp8(int64_t m = 64) {
  MatmulOp op;
  op.a = {Dense(0, DType::kE4M3, MakeDims({m, 512})), ScaleGranularity::kBlock1x128,
          Dense(1, DType::kF32, MakeDims({m, 4}))};
  op.b = {Dense(2, DType::kE4M3, MakeDims({256, 512})), ScaleGranularity::kBlock128x128,
          Dense(3, DType::kF32, MakeDims({2, 4}))};
  op.d = Dense(4, DType::kBF16, MakeDims({m, 256}));
  return op;
}

class ProgramTest : public testing::Test {
 protected:
  static GemmPoolOptions Options(absl::flat_hash_map<std::string, std::string> disabled) {
    GemmPoolOptions options;
    options.prepare_tma = PrepareTma;
    options.families.push_back(
        std::make_shared<PlainFamily>(std::vector<PlainKernel>{AnyGemmKernel(LaunchAnyGemm)}));
    options.disabled = std::move(disabled);
    return options;
  }
  explicit ProgramTest(absl::flat_hash_map<std::string, std::string> disabled = {})
      : kernels_(Options(std::move(disabled))) {
    kernels_.others = {"", "quantize", "gated", "convert", "copy", "fill", "write", ""};
  }

  absl::StatusOr<std::shared_ptr<const Program>> Compile(std::vector<Op> ops) {
    return CudaProgram::Compile(ops, kernels_);
  }

  KernelSet kernels_;
};

class ProgramWithoutFallbackTest : public ProgramTest {
 protected:
  ProgramWithoutFallbackTest() : ProgramTest({{kAnyGemmName, "the config disables it"}}) {}
};

TEST_F(ProgramTest, MultipliesFp8ByTheTmaFamilies) {
  const auto program = Compile({Fp8()});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto& code = static_cast<const CudaProgram&>(**program);
  EXPECT_THAT(std::string(code.steps()[0].choice.kernel), StartsWith("sm90_fp8_"));
  EXPECT_EQ(code.steps()[0].choice.reason, ChoiceReason::kModel);
  EXPECT_EQ(code.steps()[0].dtype, DType::kE4M3);
  EXPECT_EQ(code.scratch_bytes(), 64 * 4 * 4);  // a's scales come row-major
  EXPECT_GT(code.estimated_seconds(), 0);
}

struct Extents {
  int64_t m = 64;
  int64_t n = 256;
};
MatmulOp Direct(DType dtype, int64_t k, ScaleGranularity granularity = ScaleGranularity::kNone,
                const Extents& extents = {}) {
  const auto [m, n] = extents;
  MatmulOp op;
  op.a = {Dense(0, dtype, MakeDims({m, k})), granularity, {}};
  op.b = {Dense(2, dtype, MakeDims({n, k})), granularity, {}};
  if (granularity != ScaleGranularity::kNone) {
    op.a.scales = Dense(1, DType::kF32, ScaleShape(op.a.values.shape, granularity));
    op.b.scales = Dense(3, DType::kF32, ScaleShape(op.b.values.shape, granularity));
  }
  op.d = Dense(4, DType::kBF16, MakeDims({m, n}));
  return op;
}

TEST_F(ProgramTest, MultipliesEachTypeByItsFamilies) {
  for (const auto& [op, family] :
       {std::pair(Direct(DType::kBF16, 512), "sm90_bf16_"),
        {Direct(DType::kF16, 520), "sm90_f16_"},
        {Direct(DType::kI8, 512), "sm90_i8_"},
        {Direct(DType::kI8, 512, ScaleGranularity::kPerTensor), "sm90_i8_"},
        {Direct(DType::kI8, 528, ScaleGranularity::kPerRow), "sm90_i8_"}}) {
    const auto program = Compile({op});
    ASSERT_TRUE(program.ok()) << program.status();
    const auto& code = static_cast<const CudaProgram&>(**program);
    EXPECT_THAT(std::string(code.steps()[0].choice.kernel), StartsWith(family));
    EXPECT_EQ(code.scratch_bytes(), 0);   // scales are read as they lie
    EXPECT_TRUE(code.tunable().empty());  // a tuner's shapes are FP8's
  }
}

TEST_F(ProgramTest, LeavesToTheFallbackWhatIsSmallAndWouldHaveToBeCopied) {
  constexpr auto kNone = ScaleGranularity::kNone;
  constexpr Extents kOdd = {.m = 300, .n = 999};
  for (const MatmulOp& op :
       {Direct(DType::kBF16, 7, kNone, kOdd), Direct(DType::kF16, 9, kNone, kOdd),
        Direct(DType::kI8, 33, kNone, kOdd),
        Direct(DType::kI8, 512, ScaleGranularity::kBlock1x128)}) {
    const auto program = Compile({op});
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->steps()[0].choice.kernel, kAnyGemmName);
    EXPECT_EQ((*program)->steps()[0].choice.reason, ChoiceReason::kFallback);
  }
}

TEST_F(ProgramTest, HasScratchForCopiesOfOperands) {
  MatmulOp op = Direct(DType::kBF16, 4096, ScaleGranularity::kNone, {.m = 512, .n = 4096});
  // Along their rows weights are read as they lie, where the copy engine can.
  for (const int64_t ld : {4096, 4100}) {
    op.b.values.strides = MakeDims({1, ld});
    const auto program = Compile({op});
    ASSERT_TRUE(program.ok()) << program.status();
    const auto& code = static_cast<const CudaProgram&>(**program);
    EXPECT_THAT(std::string(code.steps()[0].choice.kernel), StartsWith("sm90_bf16_"));
    constexpr int64_t kCopy = 4096 * 4096 * 2;
    EXPECT_EQ(code.scratch_bytes() >= kCopy, ld == 4100) << code.scratch_bytes();
  }
}

TEST_F(ProgramTest, ActivationsAreTheTmaFamiliesOwn) {
  MatmulOp relu = Fp8(), silu = Fp8();
  relu.activation = Activation::kRelu;
  silu.activation = Activation::kSilu;
  const auto program = Compile({relu, silu});
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::Span<const kernels::Program::Step> steps = (*program)->steps();
  EXPECT_EQ(steps[0].choice.kernel, steps[1].choice.kernel);
  EXPECT_THAT(std::string(steps[1].choice.kernel), StartsWith("sm90_fp8_"));
  EXPECT_EQ(steps[1].choice.estimated_seconds, steps[0].choice.estimated_seconds);
}

TEST_F(ProgramTest, GatesBetweenMatmulsUnderTheirEnds) {
  GatedOp gated;
  gated.src = Dense(4, DType::kBF16, MakeDims({64, 256}));
  gated.dst = Dense(5, DType::kE4M3, MakeDims({64, 128}));
  gated.scales = Dense(6, DType::kF32, MakeDims({64, 1}));
  const auto program = Compile({Fp8(), gated});
  ASSERT_TRUE(program.ok()) << program.status();
  const kernels::Program::Step& step = (*program)->steps()[1];
  EXPECT_EQ(step.op, "gated");
  EXPECT_EQ(step.choice.kernel, "gated");
  EXPECT_EQ(step.dtype, DType::kE4M3);
  EXPECT_EQ(step.bytes, 64 * 256 * 2 + 64 * 128 + 64 * 4);
  EXPECT_GT(step.choice.estimated_seconds, 0);
}

TEST_F(ProgramTest, FallsBackForWhatTheFamiliesCannotDo) {
  MatmulOp op = Fp8();
  op.alpha = 0;
  const auto program = Compile({op});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->steps()[0].choice.kernel, kAnyGemmName);
  EXPECT_EQ((*program)->steps()[0].choice.reason, ChoiceReason::kFallback);
}

TEST_F(ProgramTest, HonoursAForcedKernelOrSaysWhyNot) {
  MatmulOp op = Fp8();
  op.kernel = Name(AllVariants()[0]);
  auto program = Compile({op});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ((*program)->steps()[0].choice.kernel, op.kernel);
  EXPECT_EQ((*program)->steps()[0].choice.reason, ChoiceReason::kForced);
  op.alpha = 0;
  program = Compile({op});
  EXPECT_EQ(program.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(program.status().message()),
              AllOf(StartsWith("op 0 (matmul): "), HasSubstr("alpha is 0")));
  op.kernel = "no_such_kernel";
  EXPECT_EQ(Compile({op}).status().code(), StatusCode::kNotFound);
}

TEST_F(ProgramWithoutFallbackTest, RefusesWithTheReasonOfEach) {
  MatmulOp op = Fp8();
  op.alpha = 0;
  const absl::Status status = Compile({op}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("alpha is 0"), HasSubstr("the config disables it")));
}

TEST_F(ProgramTest, RefusesOpsWhoseKernelIsDisabled) {
  const absl::Status status = Compile({FillOp{Dense(0, DType::kF32, MakeDims({4})), 1},
                                       ReadOp{Dense(0, DType::kF32, MakeDims({4})), 0}})
                                  .status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), StartsWith("op 1 (read): "));
}

TEST_F(ProgramTest, TakesAMatmulWithNothingToDo) {
  for (int64_t m : {0, 1}) {
    const auto program = Compile({Fp8(m)});
    EXPECT_TRUE(program.ok()) << program.status();
  }
}

TEST_F(ProgramTest, TimesLongOpsOnly) {
  const TensorRef small = Dense(0, DType::kF32, MakeDims({64}));
  const TensorRef large = Dense(0, DType::kF32, MakeDims({1 << 30}));
  const auto timed = [&](std::vector<Op> ops) {
    return static_cast<const CudaProgram&>(**Compile(std::move(ops))).timed();
  };
  EXPECT_FALSE(timed({FillOp{small, 1}, FillOp{small, 2}}));
  EXPECT_TRUE(timed({FillOp{large, 1}, FillOp{large, 2}}));
  EXPECT_FALSE(timed({FillOp{large, 1}}));  // the program's own time is the op's
}

TEST_F(ProgramTest, IsWorthAGraphWhenItsOpsAreShort) {
  const TensorRef small = Dense(0, DType::kF32, MakeDims({64}));
  const TensorRef large = Dense(0, DType::kF32, MakeDims({1 << 30}));
  const auto capturable = [&](const TensorRef& tensor, int count) {
    const auto program = *Compile(std::vector<Op>(count, FillOp{tensor, 1}));
    return static_cast<const CudaProgram&>(*program).capturable();
  };
  EXPECT_TRUE(capturable(small, 1));
  EXPECT_TRUE(capturable(small, 4));
  EXPECT_FALSE(capturable(large, 2));
  EXPECT_FALSE(capturable(large, 4));
}

TEST_F(ProgramTest, KnowsTheMemoryItRanOn) {
  const std::vector<Op> ops(8, FillOp{Dense(1, DType::kF32, MakeDims({4})), 1});
  const auto program = *Compile(ops);
  const auto& code = static_cast<const CudaProgram&>(*program);
  std::byte memory[3];
  const std::vector<std::byte*> one = {&memory[0], &memory[1]}, two = {&memory[0], &memory[2]};
  EXPECT_FALSE(code.Prepare(one, nullptr)->again);
  EXPECT_FALSE(code.Prepare(two, nullptr)->again);
  EXPECT_TRUE(code.Prepare(one, nullptr)->again);
  EXPECT_TRUE(code.Prepare(one, &memory[1])->again);  // it uses no scratch
  EXPECT_EQ(code.KeyOf(one, nullptr), code.KeyOf(one, &memory[1]));
  EXPECT_FALSE(code.KeyOf(one, nullptr) == code.KeyOf(two, nullptr));
  const auto same = *Compile(ops);
  EXPECT_FALSE(static_cast<const CudaProgram&>(*same).KeyOf(one, nullptr) ==
               code.KeyOf(one, nullptr));
}

TEST_F(ProgramTest, OpsThatShareNothingNeedNotWaitForEachOther) {
  const auto fill = [](int slot, int64_t count = 4) {
    return FillOp{Dense(slot, DType::kF32, MakeDims({count})), 1};
  };
  std::vector<std::byte> memory(64);
  const std::vector<std::byte*> apart = {&memory[0], &memory[16], &memory[32], &memory[48]};
  const std::vector<std::byte*> twice = {&memory[0], &memory[16], &memory[16], &memory[48]};
  using Flags = std::vector<bool>;
  const auto independent = [&](std::vector<Op> ops, const std::vector<std::byte*>& slots) {
    const auto program = *Compile(std::move(ops));
    return static_cast<const CudaProgram&>(*program).Prepare(slots, nullptr)->launches->independent;
  };
  const std::vector<Op> ops = {fill(0), fill(1), fill(2), fill(3), fill(3)};
  EXPECT_EQ(independent(ops, apart), (Flags{false, true, true, true, false}));
  EXPECT_EQ(independent(ops, twice), (Flags{false, true, false, true, false}));
  // Behind one that launches nothing, none was launched to overlap.
  EXPECT_EQ(independent({fill(0), fill(1, 0), fill(2), fill(3)}, apart),
            (Flags{false, true, false, true}));
}

TEST_F(ProgramTest, LongOpsWaitForEachOther) {
  std::vector<Op> ops;
  for (int slot = 0; slot < 4; ++slot) {
    ops.push_back(FillOp{Dense(slot, DType::kF32, MakeDims({1 << 30})), 1});
  }
  const auto program = *Compile(ops);
  const std::vector<std::byte*> slots(4, nullptr);
  const auto launches = static_cast<const CudaProgram&>(*program).Prepare(slots, nullptr)->launches;
  for (const bool independent : launches->independent) EXPECT_FALSE(independent);
}

TEST_F(ProgramTest, ChecksWhatIsBound) {
  const TensorRef tensor = Dense(1, DType::kF32, MakeDims({4}));
  const auto program = Compile({WriteOp{tensor, 0}});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto& code = static_cast<const CudaProgram&>(**program);
  EXPECT_EQ(code.io_bytes(), 256);
  std::byte slot[16];
  const std::vector<std::byte> bytes(16);
  const HostBytes right(absl::MakeConstSpan(bytes)), wrong(absl::MakeConstSpan(bytes).first(15));
  EXPECT_TRUE(code.CheckBindings({{slot, slot}, {right}, {}}).ok());
  for (const Bindings& bindings :
       {Bindings{{slot}, {right}, {}}, Bindings{{slot, slot}, {wrong}, {}},
        Bindings{{slot, slot}, {}, {}}}) {
    EXPECT_EQ(code.CheckBindings(bindings).code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
