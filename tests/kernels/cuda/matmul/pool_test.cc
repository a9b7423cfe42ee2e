#include "kernels/cuda/matmul/pool.h"

#include <set>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/ops/any_gemm.h"
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
OtherKernel Library() {
  return {.info = {"library_bf16", "library", "aligned bf16"},
          .why_not =
              [](const MatmulProblem& problem) {
                return problem.a.dtype == DType::kBF16 ? "" : std::string("a is not bf16");
              },
          .seconds = [](const MatmulProblem&) { return 1e-9; },
          .launch = NoLaunch};
}
GemmPoolOptions Options() {
  return {.device = FakeH200(), .others = {Library(), AnyGemmKernel(NoLaunch)}};
}
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

TEST(GemmPoolTest, FamiliesComeBeforeTheOthers) {
  const GemmPool pool(Options());
  const PoolPick pick = pool.Choose(Fp8Problem(64, 4096, 7168)).value();
  ASSERT_TRUE(pick.variant.has_value());
  EXPECT_EQ(pick.choice.kernel, Name(*pick.variant));
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

TEST(GemmPoolTest, WhatTheFamiliesCannotTakeGoesToTheFastestOther) {
  const GemmPool pool(Options());
  PoolPick pick = pool.Choose(Fp8Problem(8, 8, 70)).value();
  EXPECT_FALSE(pick.variant.has_value());
  EXPECT_EQ(pick.other, 1);
  EXPECT_EQ(pick.choice.kernel, kAnyGemmName);
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kFallback);
  EXPECT_GT(pick.choice.estimated_seconds, 0);
  pick = pool.Choose(Bf16Problem()).value();
  EXPECT_EQ(pick.other, 0);
  EXPECT_EQ(pick.choice.kernel, "library_bf16");
}

TEST(GemmPoolTest, WhatTheFamiliesMustNotReadIsLeftToTheOthers) {
  const GemmPool pool(Options());
  MatmulProblem problem = Fp8Problem(64, 4096, 7168);
  EXPECT_TRUE(pool.Choose(problem)->variant.has_value());
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
  OtherKernel study = Library();
  study.info = {"study_bf16", "study", "for study"};
  study.by_name = true;
  GemmPoolOptions options = Options();
  options.others.insert(options.others.begin(), study);
  options.others.erase(options.others.begin() + 1);  // the library, which would be as fast
  const GemmPool pool(std::move(options));
  EXPECT_EQ(pool.Choose(Bf16Problem())->choice.kernel, kAnyGemmName);
  const PoolPick pick = pool.Choose(Bf16Problem(), "study_bf16").value();
  EXPECT_EQ(pick.choice.kernel, "study_bf16");
  EXPECT_EQ(pick.choice.reason, ChoiceReason::kForced);
  EXPECT_EQ(pick.other, 0);
  EXPECT_THAT(std::string(pool.Choose(Fp8Problem(64, 4096, 7168), "study_bf16").status().message()),
              HasSubstr("a is not bf16"));
  for (const Candidate& candidate : pool.Explain(Bf16Problem())) {
    if (candidate.kernel != "study_bf16") continue;
    EXPECT_TRUE(candidate.feasible);
    EXPECT_FALSE(candidate.chosen);
    EXPECT_THAT(candidate.why_not, HasSubstr("whoever names it"));
  }
}

TEST(GemmPoolTest, EveryKernelBesideTheFamiliesHasALauncher) {
  const GemmPool pool(Options());
  const PoolPick pick = pool.Choose(Fp8Problem(8, 8, 70)).value();
  ASSERT_EQ(pick.choice.kernel, kAnyGemmName);
  EXPECT_EQ(pool.other(pick.other).launch, NoLaunch);
  EXPECT_EQ(pool.other(pool.Choose(Bf16Problem())->other).launch, NoLaunch);
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
  EXPECT_EQ(pool.Choose(Fp8Problem(64, 4096, 7168), kTiled)->variant, Variant(kTiled));

  const absl::Status unfit = pool.Choose(Fp8Problem(8, 8, 70), kTiled).status();
  EXPECT_EQ(unfit.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(unfit.message(), AllOf(HasSubstr("kernel tiled_128x128 cannot serve"),
                                     HasSubstr("rows of a are 70 bytes apart")));
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
  GemmPoolOptions options = Options();
  options.others.pop_back();
  const GemmPool pool(std::move(options));
  const absl::Status status = pool.Choose(Fp8Problem(8, 8, 70)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rows of a are 70 bytes apart"),
                                      HasSubstr("library_bf16: a is not bf16")));
  for (const Candidate& candidate : pool.Explain(Fp8Problem(8, 8, 70))) {
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
      EXPECT_THAT(candidate.why_not, HasSubstr("TMA families cannot"));
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
  const std::vector<Candidate> candidates = pool.Explain(Fp8Problem(8, 8, 70));
  EXPECT_EQ(candidates[0].kernel, kAnyGemmName);
  EXPECT_TRUE(candidates[0].chosen);
  EXPECT_THAT(candidates[1].why_not, StartsWith("k=70: rows of a"));
}

TEST(GemmPoolTest, RemembersWithoutGrowingForGood) {
  int asked = 0;
  GemmPoolOptions options = Options();
  options.others.back().seconds = [&](const MatmulProblem&) {
    ++asked;
    return 1e-6;
  };
  const GemmPool pool(std::move(options));
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
        EXPECT_EQ(pick.choice.kernel, Name(*pick.variant));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gemmd::kernels::cuda
