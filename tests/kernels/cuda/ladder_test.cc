// What the ladder's rungs take, and that a pool with them chooses as one without.

#include "kernels/cuda/ladder/ladder.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/pool.h"

namespace gemmd::kernels::cuda {
namespace {

using ladder::kNumRungs;
using ladder::kRungs;
using ladder::Rung;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

OperandTraits Rows(DType dtype, ScaleGranularity granularity, int64_t stride) {
  return {dtype, granularity, Layout::kKContiguous, stride, 256};
}

// Dense and aligned, of the types that `rung` takes.
MatmulProblem Problem(const Rung& rung, int64_t m, int64_t n, int64_t k) {
  MatmulProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  const DType in = rung.is_fp8 ? DType::kE4M3 : DType::kF16;
  p.a = Rows(in, rung.is_fp8 ? ScaleGranularity::kBlock1x128 : ScaleGranularity::kNone, k);
  p.b = Rows(in, rung.is_fp8 ? ScaleGranularity::kBlock128x128 : ScaleGranularity::kNone, k);
  p.d = Rows(rung.is_fp8 ? DType::kBF16 : DType::kF16, ScaleGranularity::kNone, n);
  return p;
}

TEST(LadderTest, TakesWhatItsIdeaReaches) {
  for (int i = 0; i < kNumRungs; ++i) {
    SCOPED_TRACE(kRungs[i].name);
    const auto why = [&](int64_t m, int64_t n, int64_t k) {
      return WhyNot(kRungs[i], Problem(kRungs[i], m, n, k));
    };
    EXPECT_THAT(why(128, 128, 64), IsEmpty());
    EXPECT_EQ(why(128, 128, 4096).empty(), i >= 1);
    EXPECT_EQ(why(4096, 4096, 4096).empty(), i >= 2);
    EXPECT_EQ(why(7, 264, 72).empty(), i >= 3);
  }
}

TEST(LadderTest, RefusesWithValueLimitAndRemedy) {
  const auto why = [](int rung, int64_t m, int64_t n, int64_t k) {
    return WhyNot(kRungs[rung], Problem(kRungs[rung], m, n, k));
  };
  EXPECT_THAT(why(0, 256, 128, 64), AllOf(HasSubstr("m=256"), HasSubstr("later rung")));
  EXPECT_THAT(why(0, 128, 128, 128), HasSubstr("k=128"));
  EXPECT_THAT(why(2, 128, 200, 64), AllOf(HasSubstr("n=200"), HasSubstr("pad n to 256")));
  EXPECT_THAT(why(2, 128, 128, 65), HasSubstr("pad k to 128"));
  for (int i = 0; i < kNumRungs; ++i) {
    EXPECT_THAT(why(i, 0, 128, 64), HasSubstr("m=0"));
    EXPECT_THAT(why(i, 128, 128, 0), HasSubstr("k=0"));
    EXPECT_THAT(why(i, int64_t{1} << 23, 128, 64), HasSubstr("4194304"));
  }
}

TEST(LadderTest, RefusesWhatAnEpilogueWouldBeFor) {
  for (const Rung& rung : kRungs) {
    SCOPED_TRACE(rung.name);
    const MatmulProblem good = Problem(rung, 128, 128, 64);
    ASSERT_THAT(WhyNot(rung, good), IsEmpty());
    const auto why = [&](auto change) {
      MatmulProblem problem = good;
      change(problem);
      return WhyNot(rung, problem);
    };
    EXPECT_THAT(why([](MatmulProblem& p) { p.has_c = true; }), HasSubstr("beta"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.has_bias = true; }), HasSubstr("bias"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.activation = Activation::kSilu; }), HasSubstr("silu"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.batch = 2; }), HasSubstr("batch=2"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.a.dtype = DType::kF32; }), HasSubstr("a is f32"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.d.dtype = DType::kF32; }), HasSubstr("d is f32"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.b.granularity = ScaleGranularity::kPerTensor; }),
                HasSubstr("scales of b"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.a.layout = Layout::kRowsContiguous; }),
                HasSubstr("rows of a are not contiguous"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.d.alignment_bytes = 2; }),
                HasSubstr("multiples of 16"));
    EXPECT_THAT(why([](MatmulProblem& p) { p.b.leading_stride = 0; }), HasSubstr("overlap"));
  }
}

TEST(LadderTest, AnElevenRungLadderIsChosenByNameAlone) {
  std::vector<PlainKernel> members = LadderKernels();
  ASSERT_EQ(members.size(), static_cast<size_t>(kNumRungs));
  GemmPoolOptions options;
  members.push_back(AnyGemmKernel(LaunchAnyGemm));
  options.families.push_back(std::make_shared<PlainFamily>(members));
  const GemmPool pool(std::move(options));
  std::set<std::string> names;
  for (int i = 0; i < kNumRungs; ++i) {
    const std::string& name = members[i].info.name;
    names.insert(name);
    EXPECT_EQ(members[i].info.family, kLadderFamily);
    const MatmulProblem problem = Problem(kRungs[i], 128, 128, 64);
    EXPECT_NE(pool.Choose(problem)->choice.kernel, name);
    const absl::StatusOr<PoolPick> forced = pool.Choose(problem, name);
    ASSERT_TRUE(forced.ok()) << forced.status();
    EXPECT_EQ(forced->choice.kernel, name);
    EXPECT_GT(forced->choice.estimated_seconds, 0);
    MatmulProblem odd = problem;
    odd.has_bias = true;
    EXPECT_EQ(pool.Choose(odd, name).status().code(), absl::StatusCode::kUnimplemented);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumRungs));
}

}  // namespace
}  // namespace gemmd::kernels::cuda
