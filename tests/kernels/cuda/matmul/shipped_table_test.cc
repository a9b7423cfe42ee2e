// The tuning table that comes with this version, against the kernels of this build.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/cuda/sm90/code_hash.h"
#include "kernels/cuda/sm90/gemm.h"
#include "kernels/cuda/tuning/table_folder.h"
#include "kernels/cuda/tuning/tuning_table.h"

namespace gemmd::kernels::cuda {
namespace {

using testing::HasSubstr;

struct Shipped {
  const char* file;
  const char* model;
};

class ShippedTableTest : public testing::TestWithParam<Shipped> {
 protected:
  const std::string path_ = std::string(GEMMD_TUNING "/") + GetParam().file;
};

INSTANTIATE_TEST_SUITE_P(, ShippedTableTest,
                         testing::Values(Shipped{"h100.json", "NVIDIA H100 80GB HBM3"},
                                         Shipped{"h200.json", "NVIDIA H200"}),
                         [](const auto& test) { return std::string(test.param.file, 4); });

TEST_P(ShippedTableTest, NamesKernelsOfThisBuild) {
  const auto table = TuningTable::Load(path_, GetParam().model);
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

TEST_P(ShippedTableTest, IsRefusedOnAnotherGpu) {
  const auto table = TuningTable::Load(path_, "NVIDIA B300");
  EXPECT_EQ(table.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(table.status().message()), HasSubstr("gemm_bench --tune"));
}

TEST_P(ShippedTableTest, IsFoundInItsFolder) {
  const auto times = LoadTables(GEMMD_TUNING, GetParam().model);
  if (times.status().code() == absl::StatusCode::kFailedPrecondition) {
    GTEST_SKIP() << "the kernels have changed since it was measured: " << times.status();
  }
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_GE(times->table.size(), 1);
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
  for (const GemmVariant& variant : AllVariants()) {
    if (!variant.streams_k()) continue;
    EXPECT_EQ(CodeOf(variant).size(), 16) << Name(variant);
    EXPECT_NE(CodeOf(variant), CodeHash(variant.shape())) << Name(variant);
    seen.emplace(CodeOf(variant));
    ++configs;
  }
  EXPECT_EQ(seen.size(), configs);
  EXPECT_EQ(CodeHash(GemmConfig{.stages = 31}), "");
  EXPECT_NE(KernelCompiler(), "");
}

}  // namespace
}  // namespace gemmd::kernels::cuda
