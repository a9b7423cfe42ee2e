// The tuning table that comes with this version, against the kernels of this build.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/cuda/matmul/code_hash.h"
#include "kernels/cuda/matmul/tuning_table.h"
#include "kernels/cuda/sm90/gemm.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

constexpr char kPath[] = GEMMD_TUNING "/h200.json";

TEST(ShippedTableTest, NamesKernelsOfThisBuild) {
  const auto table = TuningTable::Load(kPath, "NVIDIA H200");
  if (table.status().code() == absl::StatusCode::kFailedPrecondition) {
    GTEST_SKIP() << "the kernels have changed since it was measured: " << table.status();
  }
  ASSERT_TRUE(table.ok()) << table.status();
  if (!table->stale().empty()) GTEST_SKIP() << table->stale();
  EXPECT_GE(table->size(), 44);
  const auto hit = table->Find({.m = 64, .n = 4096, .k = 7168});
  ASSERT_FALSE(hit.kernels.empty());
  for (const TunedKernel& tuned : hit.kernels) {
    EXPECT_TRUE(FindVariant(tuned.kernel).has_value()) << tuned.kernel;
    EXPECT_GT(tuned.seconds, 1e-6);
    EXPECT_LT(tuned.seconds, 1e-4);
  }
}

TEST(ShippedTableTest, IsRefusedOnAnotherGpu) {
  const auto table = TuningTable::Load(kPath, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(table.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(table.status().message()), HasSubstr("gemm_bench --tune"));
}

TEST(CodeHashTest, IsOf16DigitsForEachConfigAndOneForEachCode) {
  std::set<std::string> seen;
  int configs = 0;
  for (const GemmFamilyEntry* family : kGemmFamilies) {
    for (int i = 0; i < family->num_configs; ++i) {
      const std::string_view hash = CodeHash(family->configs[i]);
      EXPECT_EQ(hash.size(), 16) << family->name << " " << i;
      EXPECT_EQ(hash.find_first_not_of("0123456789abcdef"), std::string_view::npos);
      seen.emplace(hash);
      ++configs;
    }
  }
  EXPECT_EQ(seen.size(), configs);
  EXPECT_EQ(CodeHash(GemmConfig{.stages = 31}), "");
  EXPECT_NE(KernelCompiler(), "");
}

}  // namespace
}  // namespace gemmd::kernels::cuda
