#include "kernels/cuda/matmul/pool.h"

#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/plain_family.h"
#include "tests/kernels/cuda/fake_pool.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

cudaError_t NoLaunch(const AnyGemmArgs&, cudaStream_t) { return cudaErrorNoDevice; }

// Stands in for a library that takes aligned BF16 only, quickly.
PlainKernel Library() {
  return {.info = {"library_bf16", "library", "aligned bf16"},
          .why_not =
              [](const MatmulProblem& problem) {
                return problem.a.dtype == DType::kBF16 ? "" : std::string("a is not bf16");
              },
          .seconds = [](const MatmulProblem&) { return 1e-9; },
          .launch = NoLaunch};
}
GemmPoolOptions With(std::vector<PlainKernel> kernels) {
  return {.device = FakeH200(), .families = {std::make_shared<PlainFamily>(std::move(kernels))}};
}
GemmPoolOptions Options() { return With({Library(), AnyGemmKernel(NoLaunch)}); }
TuningTable Table(std::vector<TunedKernel> kernels) {
  TuningTable table;
  table.Set({64, 4096, 7168, DType::kBF16}, std::move(kernels));
  return table;
}
MatmulProblem Bf16Problem() {
  MatmulProblem problem = Fp8Problem(8, 8, 70);
  problem.a.dtype = problem.b.dtype = DType::kBF16;
  problem.a.granularity = problem.b.granularity = ScaleGranularity::kNone;
  return problem;
}

TEST(GemmPoolTest, ListsEveryMemberOnce) {
  const GemmPool pool(Options());
  std::set<std::string> names;
  for (const KernelInfo& info : pool.kernels()) {
    names.insert(info.name);
    EXPECT_THAT(info.family, Not(IsEmpty()));
    EXPECT_THAT(info.description, Not(IsEmpty()));
  }
  EXPECT_EQ(names.size(), AllVariants().size() + 2);
  EXPECT_EQ(pool.kernels().size(), names.size());
}

TEST(GemmPoolTest, TellsWhatIsOffAndWhy) {
  GemmPoolOptions options = Options();
  options.disabled = {{"skinny", "the config disables it"}};
  options.quarantined = {{std::string(kTiled), "3 of 9 elements are wrong"},
                         {std::string(kSkinny8), "never asked"}};
  const GemmPool pool(std::move(options));
  for (const KernelInfo& info : pool.kernels()) {
    EXPECT_EQ(info.quarantined, info.name == kTiled) << info.name;
    const char* why = info.name == kTiled       ? "3 of 9 elements are wrong"
                      : info.family == "skinny" ? "the config disables it"
                                                : "";
    EXPECT_THAT(info.why_off, HasSubstr(why)) << info.name;
    EXPECT_EQ(info.why_off.empty(), *why == 0) << info.name;
  }
  EXPECT_EQ(pool.Choose(Fp8Problem(64, 4096, 7168))->choice.kernel, kTiledPair);
  const absl::Status forced = pool.Choose(Fp8Problem(64, 4096, 7168), kTiled).status();
  EXPECT_EQ(forced.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(forced.message()), HasSubstr("quarantined"));
}

TEST(GemmPoolTest, TheLastResortIsNotTakenWhereAnotherServes) {
  const GemmPool pool(Options());
  const PoolPick pick = pool.Choose(Fp8Problem(64, 4096, 7168)).value();
  ASSERT_TRUE(pool.tunable(pick.member));
  EXPECT_EQ(pick.choice.kernel, Name(AllVariants()[pick.member]));
  EXPECT_EQ(pick.choice.kernel, pool.kernels()[pick.member].name);
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kModel);
  EXPECT_GT(pick.choice.estimated_seconds, 0);
}

TEST(GemmPoolTest, TheTableDecides) {
  GemmPoolOptions options = Options();
  options.table = Table({{std::string(kTiled), 9e-6}});
  const GemmPool pool(std::move(options));
  const PoolPick pick = pool.Choose(Fp8Problem(64, 4096, 7168)).value();
  EXPECT_EQ(pick.choice.kernel, kTiled);
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kTable);
  EXPECT_EQ(pick.choice.estimated_seconds, 9e-6);
}

TEST(GemmPoolTest, WhatTheTmaFamilyWouldCopyAndIsSmallGoesToTheFastestOther) {
  const GemmPool pool(Options());
  PoolPick pick = pool.Choose(Fp8Problem(300, 999, 7)).value();
  EXPECT_FALSE(pool.tunable(pick.member));
  EXPECT_EQ(pick.choice.kernel, kAnyGemmName);
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kFallback);
  EXPECT_GT(pick.choice.estimated_seconds, 0);
  pick = pool.Choose(Bf16Problem()).value();
  EXPECT_EQ(pick.choice.kernel, "library_bf16");
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kModel);
}

// A library, too, contends where both serve: seconds decide, and Explain says the same.
TEST(GemmPoolTest, AnyContenderIsTakenWhereItIsQuicker) {
  PlainKernel library = Library();
  library.why_not = [](const MatmulProblem&) { return std::string(); };
  const GemmPool quick(With({library}));
  const MatmulProblem problem = Fp8Problem(64, 4096, 7168);
  EXPECT_EQ(quick.Choose(problem)->choice.kernel, "library_bf16");
  const std::vector<Candidate> candidates = quick.Explain(problem);
  EXPECT_EQ(candidates[0].kernel, "library_bf16");
  EXPECT_TRUE(candidates[0].chosen);
  EXPECT_THAT(candidates[1].why_not, HasSubstr(" us slower by the model"));
  library.seconds = [](const MatmulProblem&) { return 1.0; };
  const GemmPool slow(With({library}));
  EXPECT_TRUE(slow.tunable(slow.Choose(problem)->member));
}

TEST(GemmPoolTest, WhatTheFamiliesMustNotReadIsLeftToTheOthers) {
  const GemmPool pool(Options());
  MatmulProblem problem = Fp8Problem(64, 4096, 7168);
  EXPECT_TRUE(pool.tunable(pool.Choose(problem)->member));
  problem.reads_operands = false;
  const PoolPick pick = pool.Choose(problem).value();
  EXPECT_EQ(pick.choice.kernel, kAnyGemmName);
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kFallback);
  EXPECT_EQ(pool.Explain(problem)[0].kernel, kAnyGemmName);
  EXPECT_THAT(std::string(pool.Choose(problem, kTiled).status().message()),
              HasSubstr("alpha is 0: a and b must not be read; leave kernel empty"));
  EXPECT_EQ(pool.Choose(problem, kAnyGemmName)->choice.reason, ChoiceReason::kForced);
}

TEST(GemmPoolTest, AKernelByNameServesWhoeverNamesItAndIsNobodysChoice) {
  PlainKernel study = Library();
  study.info = {"study_bf16", "study", "for study"};
  study.standing = Standing::kByName;
  const GemmPool pool(With({study, AnyGemmKernel(NoLaunch)}));
  EXPECT_EQ(pool.Choose(Bf16Problem())->choice.kernel, kAnyGemmName);
  const PoolPick pick = pool.Choose(Bf16Problem(), "study_bf16").value();
  EXPECT_EQ(pick.choice.kernel, "study_bf16");
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kForced);
  EXPECT_THAT(std::string(pool.Choose(Fp8Problem(64, 4096, 7168), "study_bf16").status().message()),
              HasSubstr("a is not bf16"));
  for (const Candidate& candidate : pool.Explain(Bf16Problem())) {
    if (candidate.kernel != "study_bf16") continue;
    EXPECT_TRUE(candidate.feasible);
    EXPECT_FALSE(candidate.chosen);
    EXPECT_THAT(candidate.why_not, HasSubstr("whoever names it"));
  }
}

TEST(GemmPoolTest, EmptyProblemsAreServed) {
  const GemmPool pool(Options());
  for (const auto& [m, n, k] : {std::tuple{0, 8, 128}, {8, 0, 128}, {8, 8, 0}}) {
    EXPECT_EQ(pool.Choose(Fp8Problem(m, n, k))->choice.kernel, kAnyGemmName);
  }
}

TEST(GemmPoolTest, ForcedKernelIsTakenOrRefused) {
  const GemmPool pool(Options());
  const PoolPick pick = pool.Choose(Fp8Problem(64, 4096, 7168), kAnyGemmName).value();
  EXPECT_EQ(pick.choice.kernel, kAnyGemmName);
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kForced);
  EXPECT_EQ(pool.Choose(Fp8Problem(64, 4096, 7168), kTiled)->choice.kernel, kTiled);

  MatmulProblem scaled = Fp8Problem(8, 8, 64);
  scaled.b.granularity = ScaleGranularity::kPerTensor;
  const absl::Status unfit = pool.Choose(scaled, kTiled).status();
  EXPECT_EQ(unfit.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(unfit.message(), AllOf(HasSubstr("kernel tiled_128x128 cannot serve"),
                                     HasSubstr("scales of b are tensor")));
  const absl::Status unknown = pool.Choose(Fp8Problem(8, 8, 70), "nonesuch").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("nonesuch"));
}

TEST(GemmPoolTest, DisabledKernelsAreNeverTaken) {
  GemmPoolOptions options = Options();
  options.table = Table({{std::string(kTiled), 9e-6}});
  options.disabled = {{std::string(kTiled), "its check failed"}, {"skinny", "by the config"}};
  const GemmPool pool(std::move(options));
  EXPECT_EQ(pool.Choose(Fp8Problem(64, 4096, 7168))->choice.kernel, kTiledPair);
  EXPECT_EQ(pool.Choose(Fp8Problem(1, 4096, 7168))->choice.kernel, kTiledPair);
  EXPECT_THAT(pool.Choose(Fp8Problem(64, 4096, 7168), kTiled).status().message(),
              HasSubstr("it is disabled on this device: its check failed"));
  for (const Candidate& candidate : pool.Explain(Fp8Problem(64, 4096, 7168))) {
    if (candidate.kernel == kSkinny64) {
      EXPECT_EQ(candidate.why_not, "it is disabled on this device: by the config");
      EXPECT_FALSE(candidate.feasible);
    }
  }
}

TEST(GemmPoolTest, RefusesWithEveryReasonWhenNothingServes) {
  const GemmPool pool(With({Library()}));
  MatmulProblem problem = Fp8Problem(8, 8, 64);
  problem.b.granularity = ScaleGranularity::kPerTensor;
  const absl::Status status = pool.Choose(problem).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("scales of b are tensor"), HasSubstr("library_bf16: a is not bf16")));
  for (const Candidate& candidate : pool.Explain(problem)) {
    EXPECT_FALSE(candidate.chosen);
    EXPECT_FALSE(candidate.feasible);
    EXPECT_THAT(candidate.why_not, Not(IsEmpty()));
  }
}

TEST(GemmPoolTest, ExplainTellsWhyEachKernelLost) {
  const GemmPool pool(Options());
  const std::vector<Candidate> candidates = pool.Explain(Fp8Problem(8, 4096, 512));
  ASSERT_EQ(candidates.size(), pool.kernels().size());
  EXPECT_TRUE(candidates[0].chosen);
  EXPECT_THAT(candidates[0].why_not, IsEmpty());
  bool refused = false;
  for (size_t i = 1; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    EXPECT_FALSE(candidate.chosen);
    EXPECT_THAT(candidate.why_not, Not(IsEmpty())) << candidate.kernel;
    EXPECT_EQ(candidate.feasible, candidate.modelled_seconds > 0);
    EXPECT_FALSE(refused && candidate.feasible);
    refused = !candidate.feasible;
    if (candidate.kernel == kAnyGemmName) {
      EXPECT_THAT(candidate.why_not, HasSubstr("what no other kernel can"));
    } else if (candidate.feasible) {
      EXPECT_THAT(candidate.why_not, HasSubstr(" us slower by the model"));
    }
  }
}

TEST(GemmPoolTest, ExplainQuotesMeasuredTimes) {
  GemmPoolOptions options = Options();
  options.table = Table({{std::string(kTiled), 9e-6}, {std::string(kSkinny64), 9.8e-6}});
  const GemmPool pool(std::move(options));
  const std::vector<Candidate> candidates = pool.Explain(Fp8Problem(64, 4096, 7168));
  EXPECT_EQ(candidates[0].kernel, kTiled);
  EXPECT_EQ(candidates[1].kernel, kSkinny64);
  EXPECT_EQ(candidates[1].why_not, "0.8 us slower as measured");
  EXPECT_EQ(candidates[2].why_not, "the tuning table ranks others for this shape");
}

TEST(GemmPoolTest, ExplainPutsAFallbackFirstWhenItIsAllThereIs) {
  const GemmPool pool(Options());
  const std::vector<Candidate> candidates = pool.Explain(Fp8Problem(300, 999, 7));
  EXPECT_EQ(candidates[0].kernel, kAnyGemmName);
  EXPECT_TRUE(candidates[0].chosen);
  EXPECT_THAT(candidates[1].why_not, HasSubstr(" us slower by the model"));
}

TEST(GemmPoolTest, OperandsThatCannotBeReadAreCopiedIfTheyAreWorthIt) {
  const GemmPool pool(Options());
  const MatmulProblem read = Fp8Problem(512, 4096, 7168);
  MatmulProblem problem = read;
  problem.b.layout = Layout::kRowsContiguous;
  problem.b.leading_stride = 4096;
  const PoolPick pick = pool.Choose(problem).value(), plain = pool.Choose(read).value();
  EXPECT_EQ(pick.choice.kernel, plain.choice.kernel);
  // Read and written at memory's speed.
  EXPECT_GT(pick.choice.estimated_seconds - plain.choice.estimated_seconds, 10e-6);
  EXPECT_LT(pick.choice.estimated_seconds - plain.choice.estimated_seconds, 60e-6);
  EXPECT_GE(pool.ScratchBytes(pick.member, problem), 4096 * 7168);
  EXPECT_EQ(pool.Explain(problem)[0].kernel, pick.choice.kernel);
  EXPECT_EQ(pool.Choose(problem, kTiled)->choice.reason, ChoiceReason::kForced);
}

TEST(GemmPoolTest, CopiesBeyondTheLimitAreRefused) {
  const GemmPool pool(Options());
  MatmulProblem problem = Fp8Problem(512, 1 << 17, 1 << 14);
  problem.b.layout = Layout::kRowsContiguous;
  problem.b.leading_stride = 1 << 17;
  EXPECT_EQ(pool.Choose(problem)->choice.kernel, kAnyGemmName);
  EXPECT_THAT(std::string(pool.Choose(problem, kTiled).status().message()),
              HasSubstr("a copy of its operands takes more than 1073741824 bytes"));
}

TEST(GemmPoolTest, RemembersWithoutGrowingForGood) {
  int asked = 0;
  PlainKernel any = AnyGemmKernel(NoLaunch);
  any.seconds = [&](const MatmulProblem&) {
    ++asked;
    return 1e-6;
  };
  const GemmPool pool(With({any}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.Choose(Fp8Problem(2, 8, 1)).ok());
  EXPECT_EQ(asked, 1);
  for (int i = 1; i < GemmPool::kMaxRemembered; ++i) {
    ASSERT_TRUE(pool.Choose(Fp8Problem(2 + i, 8, 1)).ok());
  }
  EXPECT_EQ(asked, GemmPool::kMaxRemembered);
  ASSERT_TRUE(pool.Choose(Fp8Problem(2, 8, 1)).ok());  // the last one still remembered
  EXPECT_EQ(asked, GemmPool::kMaxRemembered);
  ASSERT_TRUE(pool.Choose(Fp8Problem(2, 8, 3)).ok());  // one too many
  ASSERT_TRUE(pool.Choose(Fp8Problem(2, 8, 1)).ok());
  EXPECT_EQ(asked, GemmPool::kMaxRemembered + 2);
}

TEST(GemmPoolTest, ManyThreadsMayAsk) {
  const GemmPool pool(Options());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool] {
      for (int m = 1; m < 200; ++m) {
        const PoolPick pick = pool.Choose(Fp8Problem(m, 4096, 7168)).value();
        EXPECT_EQ(pick.choice.kernel, pool.kernels()[pick.member].name);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd::kernels::cuda
