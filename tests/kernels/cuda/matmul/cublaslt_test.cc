#include "kernels/cuda/matmul/cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device/shared_library.h"

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
  Fp8GemmArgs args;
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

}  // namespace
}  // namespace gemmd::kernels::cuda
