// Which grouped kernel is told to serve what, and what it is said to take; needs no device.

#include "kernels/cuda/grouped/grouped_choice.h"

#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/grouped/grouped_op.h"
#include "kernels/grouped_problem.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

constexpr double kH200BytesPerSecond = 4.8e12;

GroupedProblem Fp8Problem(int64_t groups, int64_t rows, int64_t n, int64_t k) {
  return {.groups = groups,
          .m = groups * rows,
          .n = n,
          .k = k,
          .operands = DType::kE4M3,
          .out = DType::kBF16,
          .a_granularity = ScaleGranularity::kBlock1x128,
          .b_granularity = ScaleGranularity::kBlock128x128};
}

class GroupedChoiceTest : public testing::Test {
 protected:
  std::vector<Candidate> Rank(const GroupedProblem& problem) const {
    const GroupedMatmulOp op = *OpOf(problem);
    const std::string_view tma = TmaGroupedName(op.a);
    const KernelInfo* kernel = &fp8_;
    for (const KernelInfo& other : others_) {
      if (other.name == tma) kernel = &other;
    }
    return RankGrouped(op, *kernel, any_, gate_, kH200BytesPerSecond);
  }
  KernelInfo fp8_ = {kFp8GroupedName, kFp8GroupedName, ""};
  const KernelInfo others_[5] = {{kBf16GroupedName, kBf16GroupedName, ""},
                                 {kF16GroupedName, kF16GroupedName, ""},
                                 {kI8GroupedName, kI8GroupedName, ""},
                                 {kFp8RowGroupedName, kFp8RowGroupedName, ""},
                                 {kI8BlockGroupedName, kI8BlockGroupedName, ""}};
  KernelInfo any_ = {kAnyGroupedName, kAnyGroupedName, ""};
  KernelInfo gate_ = {kFp8GateName, kFp8GateName, ""};
};

TEST_F(GroupedChoiceTest, TheFp8KernelsComeFirst) {
  for (const bool apart : {false, true}) {
    GroupedProblem problem = Fp8Problem(8, 64, 4096, 7168);
    problem.apart = apart;
    const std::vector<Candidate> ranked = Rank(problem);
    ASSERT_EQ(ranked.size(), 2u);
    EXPECT_EQ(ranked[0].kernel, kFp8GroupedName);
    EXPECT_TRUE(ranked[0].chosen && ranked[0].feasible);
    EXPECT_EQ(ranked[0].why_not, "");
    EXPECT_FALSE(ranked[1].chosen);
    EXPECT_THAT(ranked[1].why_not, HasSubstr("us slower by the model"));
    EXPECT_GT(ranked[1].modelled_seconds, ranked[0].modelled_seconds);
  }
}

TEST_F(GroupedChoiceTest, AGateIsAppliedByTheKernelsThatDoOrTheyTellWhyNot) {
  GroupedProblem problem = Fp8Problem(8, 4096, 4096, 7168);
  problem.out = DType::kE4M3;
  problem.gate = Gate{};
  std::vector<Candidate> ranked = Rank(problem);
  ASSERT_EQ(ranked.size(), 3u);
  EXPECT_EQ(ranked[0].kernel, kFp8GateName);
  EXPECT_TRUE(ranked[0].chosen);
  EXPECT_EQ(ranked[1].kernel, kFp8GroupedName);
  EXPECT_THAT(ranked[1].why_not, HasSubstr("us slower by the model"));
  problem.gate->period = 1;
  ranked = Rank(problem);
  EXPECT_EQ(ranked[0].kernel, kFp8GroupedName);
  EXPECT_EQ(ranked[2].kernel, kFp8GateName);
  EXPECT_THAT(ranked[2].why_not, HasSubstr("gate and up change after 1 columns"));
  problem.gate->period = 0;
  problem.apart = true;
  EXPECT_EQ(Rank(problem)[0].kernel, kFp8GateName);
}

// Reading the weights at the full rate is worth a second kernel.
TEST_F(GroupedChoiceTest, BehindFewRowsAGateIsAKernelOfItsOwn) {
  GroupedProblem problem = Fp8Problem(32, 32, 4096, 7168);
  problem.out = DType::kE4M3;
  problem.gate = Gate{};
  const std::vector<Candidate> ranked = Rank(problem);
  ASSERT_EQ(ranked.size(), 3u);
  EXPECT_EQ(ranked[0].kernel, kFp8GroupedName);
  EXPECT_TRUE(ranked[0].chosen);
  EXPECT_EQ(ranked[1].kernel, kFp8GateName);
  EXPECT_THAT(ranked[1].why_not, HasSubstr("us slower by the model"));
}

TEST_F(GroupedChoiceTest, TellsWhatTheFp8KernelsLack) {
  GroupedProblem problem = Fp8Problem(8, 64, 4096, 7168);
  problem.operands = DType::kF32;
  problem.a_granularity = problem.b_granularity = ScaleGranularity::kNone;
  std::vector<Candidate> ranked = Rank(problem);
  EXPECT_EQ(ranked[0].kernel, kAnyGroupedName);
  EXPECT_TRUE(ranked[0].chosen);
  EXPECT_FALSE(ranked[1].feasible);
  EXPECT_THAT(ranked[1].why_not, HasSubstr("a is f32"));

  fp8_.why_off = "it is quarantined on this device";
  ranked = Rank(Fp8Problem(8, 64, 4096, 7168));
  EXPECT_EQ(ranked[0].kernel, kAnyGroupedName);
  EXPECT_THAT(ranked[1].why_not, HasSubstr("quarantined"));

  any_.why_off = "it is disabled on this device";
  for (const Candidate& candidate : Rank(Fp8Problem(8, 64, 4096, 7168))) {
    EXPECT_FALSE(candidate.chosen || candidate.feasible);
  }
}

// BF16 and FP16 have kernels of their own, which tell what they lack.
TEST_F(GroupedChoiceTest, TypesOf16BitsComeFirstByTheirKernels) {
  for (const auto& [type, name] :
       {std::pair(DType::kBF16, kBf16GroupedName), {DType::kF16, kF16GroupedName}}) {
    GroupedProblem problem{.groups = 8, .m = 512, .n = 4096, .k = 7168, .operands = type};
    for (const DType out : {DType::kBF16, DType::kF16, DType::kF32}) {
      problem.out = out;
      EXPECT_EQ(Rank(problem)[0].kernel, name);
      EXPECT_TRUE(Rank(problem)[0].chosen);
    }
    problem.has_bias = true;
    EXPECT_EQ(Rank(problem)[0].kernel, name);
    problem.activation = Activation::kSilu;
    EXPECT_EQ(Rank(problem)[0].kernel, name);
    problem.activation = Activation::kNone;
    problem.k = 7169;  // rows of 14338 bytes
    EXPECT_THAT(Rank(problem)[1].why_not, HasSubstr("a has a stride of 14338 bytes"));
    problem.k = 7168;
    GroupedMatmulOp op = *OpOf(problem);
    op.b.values.dtype = DType::kF32;
    EXPECT_THAT(WhyNotTma(op), HasSubstr("b is f32; these kernels multiply"));
  }
}

TEST_F(GroupedChoiceTest, BiasesAndActivationsAreNoReasonForTheKernelForAnything) {
  for (const DType operands : {DType::kE4M3, DType::kI8}) {
    GroupedProblem problem = Fp8Problem(8, 64, 4096, 7168);
    problem.operands = operands;
    problem.has_bias = true;
    for (int i = 0; i < kActivations; ++i) {
      problem.activation = static_cast<Activation>(i);
      EXPECT_EQ(Rank(problem)[0].kernel, TmaGroupedName(OpOf(problem)->a));
    }
    GroupedMatmulOp op = *OpOf(problem);
    op.bias->strides[1] = 2;
    EXPECT_THAT(WhyNotTma(op), HasSubstr("bias has a stride of 2; copy it to be dense"));
  }
}

// The kernels that apply a gate add no bias: they give way to the product and a gate behind it.
TEST_F(GroupedChoiceTest, AGateFollowsAProductWithABias) {
  GroupedProblem problem = Fp8Problem(8, 4096, 4096, 7168);
  problem.out = DType::kE4M3;
  problem.gate = Gate{};
  problem.has_bias = true;
  const std::vector<Candidate> ranked = Rank(problem);
  ASSERT_EQ(ranked.size(), 3u);
  EXPECT_EQ(ranked[0].kernel, kFp8GroupedName);
  EXPECT_TRUE(ranked[0].chosen);
  EXPECT_EQ(ranked[2].kernel, kFp8GateName);
  EXPECT_THAT(ranked[2].why_not, HasSubstr("it has a bias; kernels that apply a gate add none"));
  problem.out = DType::kF16;
  GroupedMatmulOp op = *OpOf(problem);
  op.bias->dtype = DType::kF16;
  EXPECT_THAT(WhyNotTma(op), HasSubstr("bias is f16 and the product in front of the gate is not"));
}

TEST_F(GroupedChoiceTest, Int8ComesFirstByTheKernelsForItsScales) {
  GroupedProblem problem = Fp8Problem(8, 64, 4096, 7168);
  problem.operands = DType::kI8;
  EXPECT_EQ(Rank(problem)[0].kernel, kI8BlockGroupedName);
  problem.apart = true;
  EXPECT_EQ(Rank(problem)[0].kernel, kI8BlockGroupedName);
  for (const ScaleGranularity a :
       {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow}) {
    problem.a_granularity = a;
    problem.b_granularity = ScaleGranularity::kPerRow;
    EXPECT_EQ(Rank(problem)[0].kernel, kI8GroupedName);
    EXPECT_TRUE(Rank(problem)[0].chosen);
  }
}

TEST_F(GroupedChoiceTest, E4m3WithScalesByRowHasKernelsOfItsOwn) {
  GroupedProblem problem = Fp8Problem(8, 64, 4096, 7168);
  for (const ScaleGranularity a :
       {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow}) {
    problem.a_granularity = a;
    problem.b_granularity = ScaleGranularity::kPerRow;
    for (const bool apart : {false, true}) {
      problem.apart = apart;
      EXPECT_EQ(Rank(problem)[0].kernel, kFp8RowGroupedName);
      EXPECT_TRUE(Rank(problem)[0].chosen);
    }
  }
  problem.b_granularity = ScaleGranularity::kBlock128x128;
  EXPECT_THAT(WhyNotTma(*OpOf(problem)),
              HasSubstr("weights[0] are 128x128; these kernels need none, tensor or row"));
  // No kernel that applies a gate takes such scales: it follows the product.
  problem.b_granularity = ScaleGranularity::kPerRow;
  problem.gate = Gate{};
  const std::vector<Candidate> ranked = Rank(problem);
  EXPECT_EQ(ranked[0].kernel, kFp8RowGroupedName);
  EXPECT_THAT(ranked[2].why_not, HasSubstr("scales of a are row; these kernels need 1x128"));
}

TEST_F(GroupedChoiceTest, Int8TellsWhatItLacks) {
  GroupedProblem problem{.groups = 2, .m = 64, .n = 256, .k = 131072, .operands = DType::kI8};
  EXPECT_EQ(Rank(problem)[0].kernel, kAnyGroupedName);
  EXPECT_THAT(Rank(problem)[1].why_not, HasSubstr("k=131072 exceeds 131071"));
  problem.k = 256;
  problem.b_granularity = ScaleGranularity::kBlock128x128;
  EXPECT_THAT(Rank(problem)[1].why_not, HasSubstr("scales of b are 128x128; these kernels "
                                                  "need none, tensor or row"));
  problem.a_granularity = ScaleGranularity::kBlock1x128;
  problem.b_granularity = ScaleGranularity::kPerRow;
  EXPECT_THAT(Rank(problem)[1].why_not,
              HasSubstr("scales of b are row; these kernels need 128x128"));
  // A gate of its own follows the product; those that apply one multiply e4m3.
  problem.b_granularity = ScaleGranularity::kBlock128x128;
  problem.gate = Gate{};
  EXPECT_EQ(Rank(problem)[0].kernel, kI8BlockGroupedName);
  EXPECT_THAT(Rank(problem)[2].why_not, HasSubstr("a is i8; these kernels multiply e4m3"));
}

TEST_F(GroupedChoiceTest, MatricesOutOfPlaceAreNamed) {
  GroupedProblem problem = Fp8Problem(3, 64, 256, 256);
  problem.apart = true;
  GroupedMatmulOp op = *OpOf(problem);
  EXPECT_EQ(WhyNotFp8(op), "");
  op.table[2].values.offset_bytes = 8;
  EXPECT_THAT(WhyNotFp8(op), HasSubstr("weights[2] starts at byte 8, not a multiple of 16"));
}

// Tables and maps lie apart from all else in the scratch memory, at multiples of what they need.
TEST_F(GroupedChoiceTest, TablesHaveRoom) {
  GroupedProblem problem = Fp8Problem(512, 1, 256, 256);
  problem.apart = true;
  for (const bool by_tma : {false, true}) {
    const GroupedLayout without = LayoutOf(*OpOf(Fp8Problem(512, 1, 256, 256)), by_tma);
    const GroupedLayout layout = LayoutOf(*OpOf(problem), by_tma);
    const int64_t maps = by_tma ? 2 * 512 * 128 : 0;
    EXPECT_GE(layout.scratch_bytes, without.scratch_bytes + 512 * 16 + maps);
    EXPECT_EQ(layout.maps_offset[0] % 128, 0);
    EXPECT_EQ(layout.maps_offset[1] % 128, 0);
  }
}

TEST_F(GroupedChoiceTest, FewTilesGoWhereTheyAreDoneFirst) {
  const auto kernel = [](int64_t groups, int64_t rows, int64_t n, int64_t k) {
    return LayoutOf(*OpOf(Fp8Problem(groups, rows, n, k)), true).rows;
  };
  EXPECT_EQ(kernel(1, 79, 5120, 8192), RowsKernel::kFew) << "80 thin tiles, 20 wide ones";
  EXPECT_EQ(kernel(1, 416, 896, 13056), RowsKernel::kFew) << "49 thin tiles, 16 wide ones";
  EXPECT_EQ(kernel(1, 643, 4096, 1024), RowsKernel::kUnits) << "128 tiles of units";
  EXPECT_EQ(kernel(8, 32, 1536, 512), RowsKernel::kUnits) << "k is short, and so is their code";
  EXPECT_EQ(kernel(8, 8, 1536, 2048), RowsKernel::kFew) << "no group has more than a thin tile";
  EXPECT_EQ(kernel(32, 32, 1536, 2048), RowsKernel::kFew) << "384 thin tiles";
  EXPECT_EQ(kernel(4, 121, 6272, 4736), RowsKernel::kUnits) << "some groups have two wide tiles";
  EXPECT_EQ(kernel(8, 256, 7168, 2048), RowsKernel::kPairs) << "448 wide tiles";
}

TEST_F(GroupedChoiceTest, AGateWithFewTilesIsCutByTheDevice) {
  GroupedProblem problem = Fp8Problem(1, 300, 4096, 7168);
  problem.out = DType::kE4M3;
  problem.gate = Gate{};
  EXPECT_EQ(LayoutOf(*OpOf(problem), true, true).rows, RowsKernel::kFew) << "80 halves";
  problem.m = 2000;
  EXPECT_EQ(LayoutOf(*OpOf(problem), true, true).rows, RowsKernel::kRests) << "256 wide tiles";
}

TEST_F(GroupedChoiceTest, ManyRowsAreServedByPairsAndTheirRestsWhereThosePay) {
  const auto kernel = [](int64_t groups, int64_t rows, int64_t n, int64_t k) {
    return LayoutOf(*OpOf(Fp8Problem(groups, rows, n, k)), true).rows;
  };
  EXPECT_EQ(kernel(64, 192, 4096, 7168), RowsKernel::kUnits);
  EXPECT_EQ(kernel(128, 180, 2048, 768), RowsKernel::kPairs) << "k is short";
  EXPECT_EQ(kernel(256, 256, 4096, 7168), RowsKernel::kRests);
  EXPECT_EQ(kernel(256, 256, 7168, 2048), RowsKernel::kRests);
  EXPECT_EQ(kernel(128, 380, 4096, 1408), RowsKernel::kPairs) << "k is short";
  EXPECT_EQ(kernel(16, 240, 4096, 4096), RowsKernel::kPairs) << "four rounds";
  EXPECT_EQ(kernel(64, 1024, 4096, 7168), RowsKernel::kPairs) << "a rest is one row in thirty";
}

// Two kernels finish: groups of two wide tiles go to that for any size, larger ones to pairs.
TEST_F(GroupedChoiceTest, WhatNeedsFinishIsServedByKernelsThatFinish) {
  for (const bool has_bias : {false, true}) {
    const auto kernel = [&](int64_t groups, int64_t rows, int64_t n, int64_t k) {
      GroupedProblem problem = Fp8Problem(groups, rows, n, k);
      problem.has_bias = has_bias;
      return LayoutOf(*OpOf(problem), true).rows;
    };
    const RowsKernel few = has_bias ? RowsKernel::kFew : RowsKernel::kUnits;
    EXPECT_EQ(kernel(64, 192, 4096, 7168), few);
    EXPECT_EQ(kernel(1, 643, 4096, 1024), few) << "few tiles";
    EXPECT_EQ(kernel(256, 256, 4096, 7168), has_bias ? RowsKernel::kPairs : RowsKernel::kRests);
    EXPECT_EQ(kernel(64, 1024, 4096, 7168), RowsKernel::kPairs);
    EXPECT_EQ(kernel(64, 32, 4096, 7168), RowsKernel::kFew);
  }
  GroupedMatmulOp op = *OpOf(Fp8Problem(64, 192, 4096, 7168));
  op.alpha = 0.5f;
  EXPECT_EQ(LayoutOf(op, true).rows, RowsKernel::kFew);
  GroupedProblem problem = Fp8Problem(64, 192, 4096, 7168);
  problem.out = DType::kF32;
  EXPECT_EQ(LayoutOf(*OpOf(problem), true).rows, RowsKernel::kFew);
}

TEST_F(GroupedChoiceTest, CountsAreServedByTheRowsThatTheOpExpects) {
  GroupedProblem problem = Fp8Problem(8, 4096, 4096, 7168);
  problem.layout = GroupLayout::kCounts;
  problem.m = 4096;
  const auto kernel = [&](int64_t expected) {
    problem.expected_rows = expected;
    return LayoutOf(*OpOf(problem), true).rows;
  };
  EXPECT_EQ(kernel(0), RowsKernel::kFew) << "the limit says little";
  EXPECT_EQ(kernel(8 * 20), RowsKernel::kFew);
  EXPECT_EQ(kernel(8 * 160), RowsKernel::kUnits);
  EXPECT_EQ(kernel(8 * 1000), RowsKernel::kPairs);
}

TEST_F(GroupedChoiceTest, RowsBetweenAlignedGroupsAreNotCounted) {
  GroupedProblem problem = Fp8Problem(128, 160, 2816, 4096);
  problem.layout = GroupLayout::kEnds;
  GroupedMatmulOp op = *OpOf(problem);
  EXPECT_EQ(LayoutOf(op, true).rows, RowsKernel::kUnits);
  op.alignment = 128;
  EXPECT_EQ(LayoutOf(op, true).rows, RowsKernel::kFew) << "some 96 rows a group";
  op.expected_rows = 128 * 160;
  EXPECT_EQ(LayoutOf(op, true).rows, RowsKernel::kUnits) << "the op knows better";
}

TEST_F(GroupedChoiceTest, RowsThatMayBeNobodysAreNoReasonForUnits) {
  GroupedProblem problem = Fp8Problem(8, 32, 1536, 512);
  const auto kernel = [&] { return LayoutOf(*OpOf(problem), true).rows; };
  EXPECT_EQ(kernel(), RowsKernel::kUnits) << "k is short";
  problem.layout = GroupLayout::kRowIds;
  EXPECT_EQ(kernel(), RowsKernel::kFew) << "each may have one row, padded to 128";
  problem.expected_rows = problem.m;
  EXPECT_EQ(kernel(), RowsKernel::kUnits);
}

// One token's experts: the tiles of a kernel that applies the gate would leave SMs idle.
TEST_F(GroupedChoiceTest, BehindOneTokenAGateIsAKernelOfItsOwn) {
  GroupedProblem problem = Fp8Problem(128, 1, 1536, 2048);
  problem.m = 8;
  problem.out = DType::kE4M3;
  problem.gate = Gate{};
  EXPECT_EQ(Rank(problem)[0].kernel, kFp8GroupedName);
}

struct Measured {
  int64_t groups, rows, n, k;
  double us;
};

// docs/lab/kernels.md, an H100: what queues and deadlines go by is within a quarter of it.
TEST_F(GroupedChoiceTest, TheModelIsNearWhatWasMeasured) {
  constexpr double kH100BytesPerSecond = 3.35e12;
  constexpr Measured kMeasured[] = {
      {8, 32, 4096, 7168, 93.1},     {16, 38, 4096, 7168, 175.1},   {32, 8, 4096, 7168, 333.2},
      {32, 16, 7168, 2048, 171.4},   {6, 1024, 6144, 7168, 426.4},  {6, 1024, 4096, 2048, 88.8},
      {128, 4, 1536, 2048, 147.0},   {256, 8, 4096, 7168, 2477.5},  {64, 96, 4096, 7168, 676.2},
      {4, 8192, 4096, 7168, 1448.5}, {8, 4096, 6144, 7168, 2168.6}, {8, 4096, 7168, 2048, 733.2},
  };
  for (const Measured& one : kMeasured) {
    const GroupedMatmulOp op = *OpOf(Fp8Problem(one.groups, one.rows, one.n, one.k));
    const double us = GroupedSeconds(op, true, kH100BytesPerSecond) * 1e6;
    EXPECT_NEAR(us, one.us, 0.25 * one.us)
        << one.groups << "x" << one.rows << "x" << one.n << "x" << one.k;
  }
}

}  // namespace
}  // namespace gemmd::kernels::cuda
