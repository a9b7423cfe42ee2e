#include "kernels/cuda/matmul/cublaslt/cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

#include "kernels/cuda/device/shared_library.h"
#include "kernels/cuda/matmul/cublaslt/cublaslt_family.h"

namespace gemmd::kernels::cuda {
namespace {

using ::testing::HasSubstr;

TEST(SharedLibraryTest, AnAbsentLibraryIsAStatusThatNamesIt) {
  const auto library = SharedLibrary::Open({"libgemmd-none.so.2", "libgemmd-none.so"}, {"", "/"});
  EXPECT_EQ(library.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(library.status().message()),
              HasSubstr("libgemmd-none.so.2, libgemmd-none.so"));
}

TEST(SharedLibraryTest, AnAbsentSymbolIsAStatusThatNamesIt) {
  const auto library = SharedLibrary::Open({"libc.so.6"}, {});
  ASSERT_TRUE(library.ok()) << library.status();
  int (*puts)(const char*) = nullptr;
  EXPECT_TRUE(library->Find("puts", puts).ok());
  EXPECT_NE(puts, nullptr);
  EXPECT_THAT(std::string(library->Find("gemmd_none", puts).message()), HasSubstr("gemmd_none"));
}

// On a machine with a GPU and the library it loads; anywhere else it says what is missing.
TEST(CublasLtTest, LoadNeverDies) {
  const absl::StatusOr<CublasLt> lt = CublasLt::Load("/no/such/folder");
  if (lt.ok()) {
    EXPECT_GT(lt->version(), 0);
  } else {
    EXPECT_FALSE(lt.status().message().empty());
  }
}

TEST(CublasLtTest, RefusesWhatItDoesNotPassOn) {
  const absl::StatusOr<CublasLt> lt = CublasLt::Load("");
  if (!lt.ok()) GTEST_SKIP() << lt.status();
  GemmArgs args;
  EXPECT_EQ(lt->Prepare(CublasLtKind::kBf16, args).status().code(),
            absl::StatusCode::kUnimplemented);  // empty
  args.m = args.n = args.k = 128;
  args.relu = true;
  EXPECT_EQ(lt->Prepare(CublasLtKind::kBf16, args).status().code(),
            absl::StatusCode::kUnimplemented);
  args.relu = false;
  args.m = 6;
  EXPECT_THAT(std::string(lt->Prepare(CublasLtKind::kFp8Block, args).status().message()),
              HasSubstr("m=6"));
}

MatmulProblem Problem(DType operands, ScaleGranularity a, ScaleGranularity b) {
  MatmulProblem problem;
  problem.m = 64;
  problem.n = 4096;
  problem.k = 7168;
  problem.a = {operands, a, Layout::kKContiguous, 7168};
  problem.b = {operands, b, Layout::kKContiguous, 7168};
  problem.d = {DType::kBF16, ScaleGranularity::kNone, Layout::kKContiguous, 4096};
  return problem;
}

// Without the library: what the family says of a problem is pure.
TEST(CublasLtFamilyTest, EachMemberServesItsKind) {
  using enum ScaleGranularity;
  const CublasLtFamily family(nullptr);
  MatmulProblem integers = Problem(DType::kI8, kNone, kNone);
  integers.d.dtype = DType::kI32;
  const MatmulProblem problems[] = {Problem(DType::kE4M3, kBlock1x128, kBlock128x128),
                                    Problem(DType::kE4M3, kPerTensor, kPerTensor),
                                    Problem(DType::kBF16, kNone, kNone),
                                    Problem(DType::kF16, kNone, kNone), integers};
  ASSERT_EQ(family.members().size(), std::size(problems));
  for (int member = 0; member < static_cast<int>(std::size(problems)); ++member) {
    EXPECT_EQ(family.members()[member].name, Name(static_cast<CublasLtKind>(member)));
    for (int posed = 0; posed < static_cast<int>(std::size(problems)); ++posed) {
      EXPECT_EQ(family.WhyNot(member, problems[posed]).empty(), member == posed)
          << family.members()[member].name << ", " << posed;
    }
    EXPECT_GT(family.Seconds(member, problems[member]), 3e-6);
    EXPECT_EQ(family.standing(member), Standing::kByName);
  }
}

TEST(CublasLtFamilyTest, TellsWhatNoPlanIsMadeFor) {
  using enum ScaleGranularity;
  const CublasLtFamily family(nullptr);
  const auto why = [&](CublasLtKind kind, auto change) {
    MatmulProblem problem = kind == CublasLtKind::kFp8Block
                                ? Problem(DType::kE4M3, kBlock1x128, kBlock128x128)
                                : Problem(DType::kBF16, kNone, kNone);
    change(problem);
    return family.WhyNot(static_cast<int>(kind), problem);
  };
  const auto bf16 = [&](auto change) { return why(CublasLtKind::kBf16, change); };
  EXPECT_THAT(bf16([](MatmulProblem& p) { p.batch = 2; }), HasSubstr("batch=2"));
  EXPECT_THAT(bf16([](MatmulProblem& p) { p.k = 0; }), HasSubstr("k=0"));
  EXPECT_THAT(bf16([](MatmulProblem& p) { p.has_bias = true; }), HasSubstr("bias"));
  EXPECT_THAT(bf16([](MatmulProblem& p) { p.reads_operands = false; }), HasSubstr("alpha is 0"));
  EXPECT_THAT(bf16([](MatmulProblem& p) { p.d.dtype = DType::kI32; }), HasSubstr("d is i32"));
  EXPECT_THAT(bf16([](MatmulProblem& p) { p.b.layout = Layout::kRowsContiguous; }),
              HasSubstr("b is not contiguous along k"));
  EXPECT_THAT(why(CublasLtKind::kFp8Block, [](MatmulProblem& p) { p.m = 6; }), HasSubstr("m=6"));
  EXPECT_THAT(
      why(CublasLtKind::kFp8Block,
          [](MatmulProblem& p) { p.a.scales = ScaleTraits{.row_stride = 56, .k_stride = 1}; }),
      HasSubstr("1 and 56 floats between blocks; the library takes 64 and 56"));
}

}  // namespace
}  // namespace gemmd::kernels::cuda
