// The tuning table that comes with this version, against the kernels of this build.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/tuning_table.h"

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

}  // namespace
}  // namespace gemmd::kernels::cuda
