#include "kernels/cuda/matmul/legality.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/matmul/operand_kind.h"
#include "tests/kernels/cuda/fake_pool.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Why(const MatmulProblem& problem) { return WhyNot(Variant(kTiled), problem); }
std::string Why(const GemmArgs& args) { return WhyNot(Variant(kTiled), args); }

TEST(LegalityTest, EveryKernelServesAPlainProblem) {
  for (const GemmVariant& variant : AllVariants()) {
    EXPECT_EQ(WhyNot(variant, Fp8Problem(64, 4096, 7168)), "") << Name(variant);
    EXPECT_EQ(WhyNot(variant, Fp8Args(64, 4096, 7168)), "") << Name(variant);
  }
}

TEST(LegalityTest, OddExtentsAreServedAsLongAsRowsAreOf16Bytes) {
  for (int64_t m : {1, 7, 9, 127, 129}) {
    for (int64_t n : {1, 7, 127, 576, 151674}) {
      for (int64_t k : {16, 128, 576, 2064}) {
        EXPECT_EQ(Why(Fp8Problem(m, n, k)), "") << m << "x" << n << "x" << k;
        EXPECT_EQ(Why(Fp8Args(m, n, k)), "") << m << "x" << n << "x" << k;
      }
    }
  }
}

TEST(LegalityTest, RowsMustBeMultiplesOf16Bytes) {
  EXPECT_EQ(Why(Fp8Problem(8, 8, 70)),
            "k=70: rows of a are 70 bytes apart, not a multiple of 16; pad lda to 80");
  EXPECT_EQ(Why(Fp8Args(8, 8, 70)),
            "k=70: rows of a are 70 bytes apart, not a multiple of 16; pad lda to 80");
  MatmulProblem padded = Fp8Problem(8, 8, 70);
  padded.a.leading_stride = padded.b.leading_stride = 80;
  padded.a.alignment_bytes = padded.b.alignment_bytes = 16;
  EXPECT_EQ(Why(padded), "");
  GemmArgs args = Fp8Args(8, 8, 70);
  args.lda = args.ldb = 80;
  EXPECT_EQ(Why(args), "");
  args.ldb = 72;
  EXPECT_THAT(Why(args), AllOf(HasSubstr("rows of b are 72 bytes"), HasSubstr("pad ldb to 80")));
}

TEST(LegalityTest, StrideOfASingleRowSaysNothing) {
  GemmArgs args = Fp8Args(1, 8, 80);
  args.lda = 1000001;
  EXPECT_EQ(Why(args), "");
  EXPECT_EQ(Why(Fp8Problem(1, 1, 70)), "");
}

TEST(LegalityTest, OverlappingRowsAreRefused) {
  MatmulProblem problem = Fp8Problem(8, 8, 256);
  problem.b.leading_stride = 128;
  EXPECT_THAT(Why(problem), HasSubstr("rows of b are 128 elements apart, less than k=256"));
  GemmArgs args = Fp8Args(8, 8, 256);
  args.lda = -256;
  EXPECT_THAT(Why(args), HasSubstr("rows of a are -256 elements apart"));
  args.lda = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Why(args), HasSubstr("elements apart, above"));
  args = Fp8Args(8, 8, 256);
  args.ldd = 7;
  EXPECT_EQ(Why(args), "ldd=7 is below n=8; raise it to 8");
}

TEST(LegalityTest, EmptyAndHugeExtentsAreRefused) {
  EXPECT_THAT(Why(Fp8Problem(0, 8, 16)), HasSubstr("m=0"));
  EXPECT_THAT(Why(Fp8Problem(8, 0, 16)), HasSubstr("n=0"));
  EXPECT_THAT(Why(Fp8Problem(8, 8, 0)), HasSubstr("k=0"));
  const int64_t huge = int64_t{1} << 31;
  EXPECT_THAT(Why(Fp8Problem(huge, 8, 16)), HasSubstr("m=2147483648 exceeds"));
  EXPECT_THAT(Why(Fp8Args(8, std::numeric_limits<int64_t>::max(), 16)), HasSubstr("n=9223"));
  EXPECT_THAT(Why(Fp8Problem(8, 8, huge)), HasSubstr("k=2147483648 exceeds"));
  EXPECT_THAT(Why(Fp8Problem(huge / 2, huge / 2, 16)), HasSubstr("tiles of 128x128"));
  MatmulProblem batched = Fp8Problem(8, 8, 16);
  batched.batch = 65535;
  EXPECT_EQ(Why(batched), "");
  batched.batch = 65536;
  EXPECT_THAT(Why(batched), HasSubstr("batch=65536 exceeds 65535"));
  batched = Fp8Problem(1 << 20, 1 << 20, 16);
  EXPECT_THAT(Why(batched), HasSubstr("tiles"));
  batched = Fp8Problem(1 << 17, 1 << 17, 16);
  EXPECT_EQ(Why(batched), "");
  batched.batch = 65535;
  EXPECT_THAT(Why(batched), HasSubstr("tiles"));
}

TEST(LegalityTest, OperandsMustBeBlockScaledFp8) {
  MatmulProblem problem = Fp8Problem(8, 8, 128);
  problem.a.dtype = DType::kBF16;
  EXPECT_EQ(Why(problem), "a is bf16; these kernels multiply e4m3");
  problem = Fp8Problem(8, 8, 128);
  problem.b.granularity = ScaleGranularity::kPerTensor;
  EXPECT_EQ(Why(problem), "scales of b are tensor; these kernels need 128x128");
  problem = Fp8Problem(8, 8, 128);
  problem.b.layout = Layout::kRowsContiguous;
  EXPECT_EQ(Why(problem), "b is not contiguous along k; copy or transpose it");
  problem = Fp8Problem(8, 8, 128);
  problem.a.alignment_bytes = 8;
  EXPECT_THAT(Why(problem), HasSubstr("a or its batches start at multiples of 8 bytes only"));
  problem = Fp8Problem(8, 8, 128);
  problem.d.dtype = DType::kI8;
  EXPECT_THAT(Why(problem), HasSubstr("d is i8"));
  problem.d.dtype = DType::kF32;
  EXPECT_EQ(Why(problem), "");
  problem.d.layout = Layout::kRowsContiguous;
  EXPECT_THAT(Why(problem), HasSubstr("d is not contiguous along n"));
}

TEST(LegalityTest, EachKindMultipliesItsOwnType) {
  for (Mma mma : {Mma::kBf16, Mma::kF16, Mma::kI8}) {
    const GemmVariant variant = DirectVariant(mma);
    EXPECT_EQ(WhyNot(variant, DirectProblem(KindOf(mma).operand, 64, 4096, 7168)), "");
    EXPECT_THAT(WhyNot(variant, Fp8Problem(64, 4096, 7168)),
                HasSubstr("a is e4m3; these kernels multiply "));
  }
  EXPECT_EQ(WhyNot(DirectVariant(Mma::kBf16), DirectProblem(DType::kF16, 8, 8, 64)),
            "a is f16; these kernels multiply bf16");
}

TEST(LegalityTest, RowsOfTwoByteElementsAreCountedInBytes) {
  const GemmVariant bf16 = DirectVariant(Mma::kBf16);
  EXPECT_EQ(WhyNot(bf16, DirectProblem(DType::kBF16, 8, 8, 68)),
            "k=68: rows of a are 136 bytes apart, not a multiple of 16; pad lda to 72");
  EXPECT_EQ(WhyNot(bf16, DirectProblem(DType::kBF16, 8, 8, 64 * 3)), "");
  EXPECT_EQ(WhyNot(bf16, DirectProblem(DType::kBF16, 8, 8, 72)),
            "k=72 is not a multiple of 64, which stages of 128 need; pad k to 128");
  GemmArgs args = Fp8Args(8, 8, 64);
  args.a_scales = args.b_scales = nullptr;
  EXPECT_EQ(WhyNot(bf16, args), "");
  args.lda = 65;
  EXPECT_THAT(WhyNot(bf16, args), HasSubstr("rows of a are 130 bytes apart"));
}

TEST(LegalityTest, Int8TakesScalesOfRowsAndTensorsAlone) {
  const GemmVariant i8 = DirectVariant(Mma::kI8);
  MatmulProblem problem = DirectProblem(DType::kI8, 64, 256, 512);
  for (ScaleGranularity a :
       {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow}) {
    problem.a.granularity = a;
    problem.b.granularity = ScaleGranularity::kPerRow;
    EXPECT_EQ(WhyNot(i8, problem), "");
  }
  problem.a.granularity = ScaleGranularity::kBlock1x128;
  EXPECT_EQ(WhyNot(i8, problem), "scales of a are 1x128; these kernels need none, tensor or row");
  MatmulProblem bf16 = DirectProblem(DType::kBF16, 64, 256, 512);
  bf16.b.granularity = ScaleGranularity::kPerRow;
  EXPECT_EQ(WhyNot(DirectVariant(Mma::kBf16), bf16),
            "scales of b are row; these kernels need none");
}

TEST(LegalityTest, E4m3TakesScalesOfRowsAndTensorsByKernelsOfTheirOwn) {
  const GemmVariant rows = DirectVariant(Mma::kFp8Row);
  MatmulProblem problem = Fp8Problem(64, 256, int64_t{1} << 18);  // its sums are FP32
  EXPECT_EQ(WhyNot(rows, problem), "scales of a are 1x128; these kernels need none, tensor or row");
  for (ScaleGranularity a :
       {ScaleGranularity::kNone, ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow}) {
    problem.a.granularity = a;
    problem.b.granularity = ScaleGranularity::kPerRow;
    EXPECT_EQ(WhyNot(rows, problem), "");
  }
  problem.b.granularity = ScaleGranularity::kBlock128x128;
  EXPECT_THAT(WhyNot(rows, problem), HasSubstr("scales of b are 128x128; these kernels need none"));
}

TEST(LegalityTest, Int8TakesBlockScalesByKernelsOfItsOwn) {
  const GemmVariant blocks = DirectVariant(Mma::kI8Block);
  MatmulProblem problem = Fp8Problem(64, 256, int64_t{1} << 18);  // no sum of more than 128 of k
  EXPECT_THAT(WhyNot(blocks, problem), HasSubstr("a is e4m3; these kernels multiply i8"));
  problem.a.dtype = problem.b.dtype = DType::kI8;
  EXPECT_EQ(WhyNot(blocks, problem), "");
  problem.a.granularity = ScaleGranularity::kPerRow;
  EXPECT_EQ(WhyNot(blocks, problem), "scales of a are row; these kernels need 1x128");
}

TEST(LegalityTest, Int8SumsMustFit32Bits) {
  const GemmVariant i8 = DirectVariant(Mma::kI8);
  EXPECT_EQ(WhyNot(i8, DirectProblem(DType::kI8, 8, 8, 131072 - 128)), "");
  EXPECT_THAT(WhyNot(i8, DirectProblem(DType::kI8, 8, 8, 131072)),
              HasSubstr("k=131072 exceeds 131071, above which sums in 32 bits could overflow"));
}

TEST(LegalityTest, AddressesMustBeAlignedWhereTmaReads) {
  GemmArgs args = Fp8Args(8, 8, 128);
  args.a += 8;
  EXPECT_EQ(Why(args), "a is at an address 8 bytes past a multiple of 16; align it to 16");
  args = Fp8Args(8, 8, 128);
  args.a_scales += 2;
  EXPECT_THAT(Why(args), HasSubstr("a_scales is at an address 8 bytes"));
  args = Fp8Args(8, 8, 128);
  args.b_scales += 1;
  EXPECT_EQ(Why(args), "");  // not read by TMA
  args.d = static_cast<uint8_t*>(args.d) + 2;
  EXPECT_EQ(Why(args), "");  // stored element by element
  args.d = static_cast<uint8_t*>(args.d) + 1;
  EXPECT_THAT(Why(args), HasSubstr("d is at an address 1 bytes past"));
  args = Fp8Args(8, 8, 128);
  args.b = nullptr;
  EXPECT_EQ(Why(args), "b is null; give its address");
  args = Fp8Args(8, 8, 128);
  args.beta = 1;
  EXPECT_EQ(Why(args), "c is null; give its address");
}

TEST(LegalityTest, ScalesOfAMustBePaddedTo4Floats) {
  GemmArgs args = Fp8Args(9, 8, 256);
  EXPECT_EQ(Why(args), "");
  args.a_scales_ld = 9;
  EXPECT_THAT(Why(args), AllOf(HasSubstr("a_scales_ld=9"), HasSubstr("pad it to 12")));
  args.a_scales_ld = 8;
  EXPECT_EQ(Why(args), "a_scales_ld=8 is below m=9; raise it to 12");
  args = Fp8Args(9, 200, 256);
  args.b_scales_ld = 1;
  EXPECT_EQ(Why(args), "b_scales_ld=1 is below ceil(k/128)=2; raise it to 2");
}

TEST(LegalityTest, BatchStridesMustKeepAlignmentAndMayBeShared) {
  GemmArgs args = Fp8Args(8, 8, 128);
  args.batch = 3;
  args.a_batch = 1024;
  args.a_scales_batch = 8;
  args.d_batch = 64;
  EXPECT_EQ(Why(args), "");  // b is shared by all
  args.a_batch = 1032;
  EXPECT_EQ(Why(args),
            "matrices of a are 1032 bytes apart, not a multiple of 16; pad them to 1040");
  args.a_batch = 1024;
  args.a_scales_batch = 9;
  EXPECT_THAT(Why(args), HasSubstr("matrices of a_scales are 36 bytes apart"));
  args.a_scales_batch = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Why(args), HasSubstr("elements apart, outside"));
}

TEST(LegalityTest, SplitNeedsABlockOfKForEachPart) {
  EXPECT_EQ(WhyNot(Variant("skinny_8x64_k4"), Fp8Problem(8, 64, 512)), "");
  EXPECT_EQ(WhyNot(Variant("skinny_8x64_k4"), Fp8Problem(8, 64, 384)),
            "k=384 has 3 blocks of 128, fewer than split=4; use a smaller split");
}

TEST(LegalityTest, ClustersHaveALimit) {
  GemmVariant variant = Variant(kTiledPair);
  variant.split = 8;
  EXPECT_EQ(WhyNot(variant, Fp8Problem(128, 128, 7168)),
            "split=8 makes clusters of 16 blocks; the limit is 8, so use a split of 1 to 4");
}

TEST(LegalityTest, DeviceMustBeSm90) {
  DeviceTraits device = FakeH200();
  EXPECT_EQ(WhyNot(device), "");
  device.compute_major = 8;
  EXPECT_EQ(WhyNot(device), "device is sm_80; these kernels need sm_90");
  device.compute_major = 10;
  EXPECT_EQ(WhyNot(device), "device is sm_100; these kernels need sm_90");
}

}  // namespace
}  // namespace gemmd::kernels::cuda
