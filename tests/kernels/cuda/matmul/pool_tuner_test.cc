#include "kernels/cuda/matmul/pool_tuner.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/plain_family.h"
#include "tests/kernels/cuda/fake_pool.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr TuneShape kShape = {.m = 64, .n = 4096, .k = 7168};

// A pool with a tuner, which compiles nothing.
class Tuned {
 public:
  explicit Tuned(TuningTable table = {})
      : pool_({.device = FakeH200(),
               .table = std::move(table),
               .families = {std::make_shared<PlainFamily>(
                   std::vector<PlainKernel>{AnyGemmKernel(nullptr)})}}),
        tuner_(
            pool_, FakeH200(), "580.1",
            {.compile = [](absl::Span<const Op>) { return absl::UnimplementedError("no device"); },
             .changed = [this] { ++changes; }}) {}

  GemmPool& pool() { return pool_; }
  PoolTuner& tuner() { return tuner_; }
  std::string Chosen(GemmPool::By by = GemmPool::By::kTuned) {
    return std::string(pool_.Choose(Fp8Problem(64, 4096, 7168), "", by)->choice.kernel);
  }
  absl::Status Keep(double tiled, double skinny) {
    return tuner_.Keep(
        {{kShape, {{std::string(kTiled), tiled}, {std::string(kSkinny64), skinny}}}});
  }

  int changes = 0;

 private:
  GemmPool pool_;
  PoolTuner tuner_;
};

TEST(PoolTunerTest, WhatWasMeasuredDecides) {
  Tuned tuned;
  const uint64_t before = tuned.tuner().generation();
  ASSERT_TRUE(tuned.Keep(9e-6, 8e-6).ok());
  EXPECT_EQ(tuned.Chosen(), kSkinny64);
  EXPECT_EQ(tuned.tuner().Current(kShape)->reason, ChoiceReason::kTuned);
  ASSERT_TRUE(tuned.Keep(7e-6, 8e-6).ok());
  EXPECT_EQ(tuned.Chosen(), kTiled);
  EXPECT_EQ(tuned.changes, 2);
  EXPECT_GT(tuned.tuner().generation(), before);
  EXPECT_EQ(tuned.tuner().kept_shapes(), 1);
}

TEST(PoolTunerTest, AChoiceThatIsPinnedFollowsTheShippedTableAlone) {
  TuningTable table;
  table.Set({64, 4096, 7168, DType::kBF16}, {{std::string(kTiledPair), 5e-6}});
  Tuned tuned(std::move(table));
  ASSERT_TRUE(tuned.Keep(9e-6, 8e-6).ok());
  EXPECT_EQ(tuned.Chosen(), kSkinny64);
  EXPECT_EQ(tuned.Chosen(GemmPool::By::kShipped), kTiledPair);
}

TEST(PoolTunerTest, ExplainTellsWhatWasMeasuredHere) {
  TuningTable table;
  table.Set({64, 4096, 7168, DType::kBF16}, {{std::string(kTiledPair), 5e-6}});
  Tuned tuned(std::move(table));
  Candidate first = tuned.pool().Explain(Fp8Problem(64, 4096, 7168))[0];
  EXPECT_GT(first.measured_seconds, 0);
  EXPECT_FALSE(first.tuned);
  ASSERT_TRUE(tuned.Keep(9e-6, 8e-6).ok());
  first = tuned.pool().Explain(Fp8Problem(64, 4096, 7168))[0];
  EXPECT_EQ(first.kernel, kSkinny64);
  EXPECT_TRUE(first.tuned);
}

TEST(PoolTunerTest, MeasuresTheChosenOneAndTheModelsBest) {
  Tuned tuned;
  const std::vector<std::string> all = *tuned.tuner().Contenders(kShape, 100);
  EXPECT_EQ(all[0], tuned.Chosen());
  const std::vector<std::string> few = *tuned.tuner().Contenders(kShape, 2);
  EXPECT_THAT(few, ElementsAre(all[0], all[1]));
  EXPECT_EQ(tuned.tuner().Contenders({.m = 8, .n = 8, .k = 70}, 8).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PoolTunerTest, NoTimesThatAreNone) {
  Tuned tuned;
  for (const double seconds :
       {0.0, -1.0, std::nan(""), 1e30, std::numeric_limits<double>::infinity()}) {
    const absl::Status status = tuned.Keep(9e-6, seconds);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << seconds;
    EXPECT_THAT(std::string(status.message()), HasSubstr("measure again"));
  }
  EXPECT_EQ(tuned.tuner().Keep({{kShape, {{"no_such_kernel", 1e-6}}}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tuned.tuner().kept_shapes(), 0);
  EXPECT_EQ(tuned.changes, 0);
}

TEST(PoolTunerTest, TwoMachinesTablesMerge) {
  Tuned here, there;
  ASSERT_TRUE(here.Keep(8e-6, 10e-6).ok());
  ASSERT_TRUE(there.Keep(14e-6, 10e-6).ok());
  ASSERT_TRUE(
      there.tuner().Keep({{{.m = 1, .n = 4096, .k = 7168}, {{std::string(kSkinny8), 3e-6}}}}).ok());
  const auto imported = here.tuner().Import(there.tuner().Export("2026-11-24"));
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->shapes, 2);
  EXPECT_EQ(imported->skipped, "");
  EXPECT_EQ(here.tuner().kept_shapes(), 2);
  EXPECT_EQ(here.Chosen(), kSkinny64);  // 10 us on both; the other one takes 11 us on average
}

TEST(PoolTunerTest, WhatItExportedItTakesAfterARestart) {
  Tuned before, after;
  ASSERT_TRUE(before.Keep(9e-6, 8e-6).ok());
  ASSERT_TRUE(after.tuner().Import(before.tuner().Export("2026-11-24")).ok());
  EXPECT_EQ(after.Chosen(), kSkinny64);
}

TEST(PoolTunerTest, RefusesATableThatCannotBeUsedAndKeepsItsOwn) {
  Tuned tuned;
  ASSERT_TRUE(tuned.Keep(9e-6, 8e-6).ok());
  const std::string text = tuned.tuner().Export("2026-11-24");
  const auto refusal = [&](std::string_view table) {
    const absl::Status status = tuned.tuner().Import(table).status();
    return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
  };
  EXPECT_THAT(refusal(text.substr(0, text.size() / 2)), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(refusal(absl::StrReplaceAll(text, {{"NVIDIA H200", "NVIDIA H100"}})),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("NVIDIA H100")));
  for (const char* us : {"0", "-3", "1e30", "NaN", "\"8\""}) {
    EXPECT_THAT(refusal(absl::StrReplaceAll(text, {{"\"us\": 8.0", absl::StrCat("\"us\": ", us)}})),
                HasSubstr("INVALID_ARGUMENT"))
        << us;
  }
  EXPECT_EQ(tuned.tuner().kept_shapes(), 1);
  EXPECT_EQ(tuned.Chosen(), kSkinny64);
  EXPECT_EQ(tuned.changes, 1);
}

TEST(PoolTunerTest, LeavesOutKernelsThatThisBuildLacks) {
  Tuned tuned, other;
  ASSERT_TRUE(other.Keep(9e-6, 8e-6).ok());
  const std::string text = absl::StrReplaceAll(
      other.tuner().Export(""),
      {{absl::StrCat("\"name\": \"", std::string(kSkinny64), "\""), "\"name\": \"gone\""}});
  const auto imported = tuned.tuner().Import(text);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->shapes, 1);
  EXPECT_THAT(imported->skipped, HasSubstr("1 times of kernels that this build lacks"));
  EXPECT_EQ(tuned.Chosen(), kTiled);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
