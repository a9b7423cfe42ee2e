#include "kernels/cuda/tuning/model.h"

#include <string>

#include "gtest/gtest.h"
#include "kernels/cuda/matmul/legality.h"
#include "tests/kernels/cuda/fake_pool.h"

namespace gemmd::kernels::cuda {
namespace {

double Seconds(std::string_view name, const MatmulProblem& problem) {
  return RoughSeconds(Variant(name), problem, FakeH200());
}

// A tensor core's 4096 multiplications and additions a clock, on all SMs.
double PeakFlops(const ModelConstants& constants) { return 2 * 4096 * 132 * constants.clock_hz; }

TEST(RoughModelTest, NothingIsFasterThanItsBytesOrItsFlops) {
  const ModelConstants constants;
  for (int64_t m : {1, 16, 64, 128, 512, 4096}) {
    for (int64_t n : {64, 576, 7168, 32768}) {
      for (int64_t k : {512, 2048, 16384}) {
        const MatmulProblem problem = Fp8Problem(m, n, k);
        for (const GemmVariant& variant : AllVariants()) {
          if (!WhyNot(variant, problem).empty()) continue;
          const double seconds = RoughSeconds(variant, problem, FakeH200());
          EXPECT_GE(seconds, constants.launch_seconds + problem.bytes() / constants.hbm_bytes_per_s)
              << Name(variant) << " " << ToString(problem);
          EXPECT_GE(seconds, problem.flops() / PeakFlops(constants)) << Name(variant);
          EXPECT_LT(seconds, 1) << Name(variant);
        }
      }
    }
  }
}

TEST(RoughModelTest, FewRowsWantTheSkinnyFamily) {
  EXPECT_LT(Seconds(kSkinny8, Fp8Problem(1, 8192, 4096)),
            Seconds(kTiled, Fp8Problem(1, 8192, 4096)));
}

TEST(RoughModelTest, ManyRowsWantTheTiledFamily) {
  const MatmulProblem problem = Fp8Problem(4096, 4096, 7168);
  EXPECT_LT(Seconds(kTiled, problem), Seconds(kSkinny64, problem));
  EXPECT_LT(Seconds(kSkinny64, problem), Seconds(kSkinny8, problem));
}

TEST(RoughModelTest, SplitHelpsWhenTilesAreFewAndKIsLong) {
  EXPECT_LT(Seconds("skinny_8x64_k8", Fp8Problem(1, 576, 7168)),
            Seconds(kSkinny8, Fp8Problem(1, 576, 7168)));
  EXPECT_GT(Seconds("skinny_8x64_k8", Fp8Problem(1, 32768, 1024)),
            Seconds(kSkinny8, Fp8Problem(1, 32768, 1024)));
}

TEST(RoughModelTest, MulticastHelpsLargeProblems) {
  const MatmulProblem problem = Fp8Problem(8192, 8192, 8192);
  EXPECT_LT(Seconds(kTiledPair, problem), Seconds(kTiled, problem));
  EXPECT_GT(Seconds(kTiledPair, Fp8Problem(128, 4096, 4096)),
            Seconds(kTiled, Fp8Problem(128, 4096, 4096)));
}

TEST(RoughModelTest, AnotherWaveCostsATile) {
  // 132 tiles fill the chip; the 133rd runs alone.
  const double one = Seconds(kTiled, Fp8Problem(128, 132 * 128, 4096));
  const double two = Seconds(kTiled, Fp8Problem(128, 133 * 128, 4096));
  EXPECT_GT(two, one * 1.3);
  EXPECT_LT(two, one * 2.1);
}

TEST(RoughModelTest, UnalignedResultsCostMore) {
  MatmulProblem problem = Fp8Problem(4096, 4096, 512);
  const double aligned = Seconds(kTiled, problem);
  problem.d.alignment_bytes = 2;
  EXPECT_GT(Seconds(kTiled, problem), aligned);
}

// What shares its tiles asks L2 for less.
TEST(RoughModelTest, RowsWithinLinesCostMostWhereNothingIsShared) {
  const MatmulProblem aligned = Fp8Problem(8192, 8192, 8192);
  MatmulProblem within = aligned;
  within.a.alignment_bytes = within.b.alignment_bytes = 64;
  const double alone = Seconds(kTiled, within) / Seconds(kTiled, aligned);
  EXPECT_GT(alone, 1.0);
  EXPECT_LT(Seconds(kTiledPair, within) / Seconds(kTiledPair, aligned), alone);
  within.b.alignment_bytes = 128;
  EXPECT_LT(Seconds(kTiled, within) / Seconds(kTiled, aligned), alone);
}

TEST(ModelTest, ACorrectionStaysWithinItsLimitsAndAboveTheFloor) {
  const ModelConstants constants;
  for (int64_t m : {1, 24, 200, 4096, 1 << 20}) {
    for (int64_t n : {64, 7168, 1 << 17}) {
      for (int64_t k : {128, 2048, 1 << 17}) {
        MatmulProblem problem = Fp8Problem(m, n, k);
        for (const int64_t batch : {1, 64}) {
          problem.batch = batch;
          for (const GemmVariant& variant : AllVariants()) {
            if (!WhyNot(variant, problem).empty()) continue;
            const double rough = RoughSeconds(variant, problem, FakeH200());
            const double seconds = ModelSeconds(variant, problem, FakeH200());
            EXPECT_GE(seconds, LeastOfRough() * rough * (1 - 1e-6)) << Name(variant);
            EXPECT_GE(seconds, problem.bytes() / constants.hbm_bytes_per_s) << Name(variant);
            EXPECT_GE(seconds, problem.flops() / PeakFlops(constants)) << Name(variant);
            EXPECT_LE(seconds, 2 * rough) << Name(variant);
          }
        }
      }
    }
  }
}

TEST(ModelTest, TheSameFeaturesGiveTheSameCorrection) {
  const MatmulProblem problem = Fp8Problem(200, 4096, 7168);
  for (const GemmVariant& variant : AllVariants()) {
    const double rough = RoughSeconds(variant, problem, FakeH200());
    const ModelFeatures features = FeaturesOf(variant, problem, FakeH200(), rough);
    EXPECT_EQ(CorrectionOf(features, variant.shape().mma),
              CorrectionOf(features, variant.shape().mma));
    EXPECT_FLOAT_EQ(features[0], rough * 1e6);
  }
}

TEST(ModelTest, ClustersAtOnceAreAsMeasured) {
  const DeviceTraits device = FakeH200();
  EXPECT_EQ(ClustersAtOnce(device, 1, 1), 132);
  EXPECT_EQ(ClustersAtOnce(device, 1, 2), 264);
  EXPECT_EQ(ClustersAtOnce(device, 2, 1), 66);
  EXPECT_EQ(ClustersAtOnce(device, 3, 2), 78);
  EXPECT_EQ(ClustersAtOnce(device, 4, 1), 30);
  EXPECT_EQ(ClustersAtOnce(device, 8, 1), 15);
}

}  // namespace
}  // namespace gemmd::kernels::cuda
