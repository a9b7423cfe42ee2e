#include "kernels/cpu/matmul/selector.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"

namespace gemmd::kernels::cpu {
namespace {

using testing::HasSubstr;

MatmulProblem Problem(int64_t m, int64_t n, int64_t k, DType dtype) {
  MatmulProblem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.a.dtype = problem.b.dtype = dtype;
  problem.a.leading_stride = problem.b.leading_stride = k;
  problem.d.leading_stride = n;
  return problem;
}

class SelectorTest : public testing::Test {
 protected:
  SelectorTest() {
    for (const MatmulKernel& kernel : MatmulKernels()) pool_.push_back({&kernel, kernel.name});
  }
  std::string Best(const MatmulProblem& problem) {
    return std::string(Select(problem, "", pool_, machine_).value().choice.kernel);
  }
  std::vector<PoolEntry> pool_;
  Machine machine_ = MachineFor(2);
};

TEST_F(SelectorTest, ChoosesByTypeAndShape) {
  EXPECT_EQ(Best(Problem(512, 512, 512, DType::kF32)), "cpu_f32_blas");
  EXPECT_EQ(Best(Problem(512, 512, 512, DType::kE4M3)), "cpu_any_panel");
  EXPECT_EQ(Best(Problem(512, 512, 512, DType::kI8)), "cpu_i8_exact");
  EXPECT_EQ(Best(Problem(1, 4096, 4096, DType::kBF16)), "cpu_any_dot");
  EXPECT_EQ(Best(Problem(1, 4096, 4096, DType::kI8)), "cpu_any_dot");
}

TEST_F(SelectorTest, ServesStridedF32ByPanels) {
  MatmulProblem problem = Problem(512, 512, 512, DType::kF32);
  problem.b.layout = Layout::kStrided;
  EXPECT_EQ(Best(problem), "cpu_any_panel");
}

TEST_F(SelectorTest, RanksFeasibleFirstAndExplainsTheRest) {
  const std::vector<Candidate> candidates =
      Rank(Problem(512, 512, 512, DType::kF32), pool_, machine_);
  ASSERT_EQ(candidates.size(), pool_.size());
  EXPECT_TRUE(candidates[0].chosen);
  for (size_t i = 0; i < candidates.size(); ++i) {
    EXPECT_EQ(candidates[i].feasible, candidates[i].why_not.empty());
    EXPECT_EQ(candidates[i].modelled_seconds > 0, candidates[i].feasible);
    if (i > 0) {
      EXPECT_FALSE(candidates[i].chosen);
      EXPECT_GE(candidates[i - 1].feasible, candidates[i].feasible);
    }
    if (candidates[i].kernel == "cpu_any_dot") {
      EXPECT_EQ(candidates[i].why_not, "m=512 is above 32");
    }
  }
}

TEST_F(SelectorTest, ForcesAKernelByName) {
  const auto selection =
      Select(Problem(512, 512, 512, DType::kF32), "cpu_any_panel", pool_, machine_);
  ASSERT_TRUE(selection.ok());
  EXPECT_EQ(selection->choice.kernel, "cpu_any_panel");
  EXPECT_EQ(selection->choice.reason, ChoiceReason::kForced);
}

TEST_F(SelectorTest, RefusesAForcedKernelThatDoesNotExist) {
  const auto selection = Select(Problem(8, 8, 8, DType::kF32), "sm90_x", pool_, machine_);
  EXPECT_EQ(selection.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(selection.status().message()), HasSubstr("use one of cpu_f32_blas"));
}

TEST_F(SelectorTest, RefusesAForcedKernelThatCannotServe) {
  const auto selection = Select(Problem(8, 8, 8, DType::kI8), "cpu_f32_blas", pool_, machine_);
  EXPECT_EQ(selection.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(selection.status().message()), HasSubstr("a is i8"));
}

TEST_F(SelectorTest, GivesEveryReasonWhenNothingServes) {
  for (PoolEntry& entry : pool_) entry.enabled = entry.name == "cpu_f32_blas";
  const auto selection = Select(Problem(8, 8, 8, DType::kI8), "", pool_, machine_);
  EXPECT_EQ(selection.status().code(), absl::StatusCode::kUnimplemented);
  const std::string message(selection.status().message());
  EXPECT_THAT(message, HasSubstr("cpu_i8_exact: it is disabled"));
  EXPECT_THAT(message, HasSubstr("cpu_f32_blas: a is i8"));
}

TEST(CpuBackendTest, DescribesItself) {
  const auto backend = *CreateCpuBackend({.name = "cpu:7", .threads = 2, .memory_bytes = 12345});
  EXPECT_EQ(backend->info().name, "cpu:7");
  EXPECT_EQ(backend->info().memory_bytes, 12345);
  EXPECT_THAT(backend->info().model, HasSubstr("2 threads"));
  for (double flops : backend->info().peak_flops) EXPECT_GT(flops, 0);
  EXPECT_GT((*CreateCpuBackend({}))->info().memory_bytes, 0);
}

TEST(CpuBackendTest, RefusesBadOptions) {
  for (const CpuBackendOptions& options :
       {CpuBackendOptions{.threads = -1}, CpuBackendOptions{.memory_bytes = -1},
        CpuBackendOptions{.disabled_kernels = {"no_such"}}}) {
    EXPECT_EQ(CreateCpuBackend(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(CpuBackendTest, DisablesKernelsByNameOrFamily) {
  const auto backend = *CreateCpuBackend({.disabled_kernels = {"cpu_blas", "cpu_fill"}});
  for (const Candidate& candidate : backend->Explain(Problem(64, 64, 64, DType::kF32))) {
    EXPECT_EQ(candidate.chosen, candidate.kernel == "cpu_any_panel");
  }
  EXPECT_EQ(backend->Compile({Op(FillOp{})}).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(CpuBackendTest, ChoicesPointAtTheBackendsKernels) {
  const auto backend = *CreateCpuBackend({});
  FillOp fill{{0, 0, DType::kBF16, MakeDims({4}), MakeDims({1})}, 1};
  const auto program = *backend->Compile({Op(fill)});
  const Program::Step& step = program->steps()[0];
  EXPECT_EQ(step.op, "fill");
  EXPECT_EQ(step.dtype, DType::kBF16);
  EXPECT_EQ(step.choice.reason, ChoiceReason::kOnly);
  EXPECT_GT(program->estimated_seconds(), 0);
  bool found = false;
  for (const KernelInfo& kernel : backend->kernels()) {
    found |= kernel.name.data() == step.choice.kernel.data();
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace gemmd::kernels::cpu
