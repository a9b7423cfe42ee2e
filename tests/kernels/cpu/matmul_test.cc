// Each kernel forced onto problems that the selector would give to another. What every kernel has
// to do is in the contract suite; this is about blocks, panels and chunks.

#include "kernels/cpu/matmul/matmul.h"

#include <set>
#include <string>
#include <tuple>

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/contract/backend_executor.h"
#include "tests/kernels/contract/matmul_check.h"
#include "tests/sanitized.h"

namespace gemmd::kernels::cpu {
namespace {

using contract::MatmulCase;
using contract::Scene;

class MatmulTest : public testing::Test {
 protected:
  void Check(Scene& scene, const MatmulCase& c, const std::string& kernel) {
    SCOPED_TRACE(testing::Message() << ToString(c) << " by " << kernel);
    MatmulOp op = MakeMatmul(scene, c);
    op.kernel = kernel;
    const contract::Outcome outcome = ExpectMatchesReference(*executor_, scene, op);
    ASSERT_EQ(outcome.kernels.size(), 1u);
    EXPECT_EQ(outcome.kernels[0], kernel);
  }

  std::unique_ptr<contract::Executor> executor_ =
      contract::MakeBackendExecutor(*CreateCpuBackend({}));
};

MatmulCase Case(int64_t m, int64_t n, int64_t k, DType dtype) {
  MatmulCase c{m, n, k};
  c.dtype = dtype;
  return c;
}

TEST_F(MatmulTest, PanelsMeetAtTheirBlocksEdges) {
  Scene scene;
  for (const auto& [m, n, k] : {std::tuple{1023, 20, 511},
                                {1025, 20, 513},
                                {20, 1025, 512},
                                {1024, 1024, 64},
                                {1, 2050, 1030}}) {
    Check(scene, Case(m, n, k, DType::kF32), "cpu_any_panel");
    MatmulCase c = Case(m, n, k, DType::kE4M3);
    c.a_granularity = ScaleGranularity::kBlock1x128;
    c.b_granularity = ScaleGranularity::kBlock128x128;
    Check(scene, c, "cpu_any_panel");
  }
}

TEST_F(MatmulTest, PanelsTakeBlocksOfColumnsWithEveryGranularity) {
  Scene scene;
  for (ScaleGranularity granularity :
       {ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow, ScaleGranularity::kBlock1x128,
        ScaleGranularity::kBlock128x128}) {
    MatmulCase c = Case(300, 290, 1100, DType::kE4M3);
    c.a_granularity = c.b_granularity = granularity;
    c.a = c.b = contract::Placement::kTransposed;
    Check(scene, c, "cpu_any_panel");
    c.a = c.b = contract::Placement::kStrided;
    Check(scene, c, "cpu_any_panel");
  }
}

TEST_F(MatmulTest, ExactInt8MeetsAtItsBlocksEdges) {
  Scene scene;
  for (const auto& [m, n, k] :
       {std::tuple{511, 20, 1023}, {513, 20, 1025}, {20, 513, 1024}, {7, 7, 3000}}) {
    Check(scene, Case(m, n, k, DType::kI8), "cpu_i8_exact");
    MatmulCase c = Case(m, n, k, DType::kI8);
    c.a_granularity = ScaleGranularity::kPerRow;
    c.b_granularity = ScaleGranularity::kBlock1x128;
    Check(scene, c, "cpu_i8_exact");
  }
}

TEST_F(MatmulTest, DotsTakeEveryNumberOfRows) {
  Scene scene;
  for (int64_t m = 1; m <= 32; ++m) {
    for (const DTypeInfo& info : kDTypes) {
      // The thread sanitizer needs minutes for all of them.
      if (kSanitized && &info != &kDTypes[m % kDTypes.size()]) continue;
      MatmulCase c = Case(m, 33, scene.Between(1, 1200), info.dtype);
      c.a = contract::kPlacements[m % 4];
      Check(scene, c, "cpu_any_dot");
      c.a_granularity = ScaleGranularity::kBlock1x128;
      c.b_granularity = ScaleGranularity::kBlock128x128;
      Check(scene, c, "cpu_any_dot");
    }
  }
}

TEST_F(MatmulTest, DotsMeetAtTheirBlocksEdges) {
  Scene scene;
  for (int64_t n : {4095, 4096, 4097}) Check(scene, Case(2, n, 130, DType::kBF16), "cpu_any_dot");
}

TEST_F(MatmulTest, BlasTakesEveryPairOfLayouts) {
  Scene scene;
  using contract::Placement;
  for (Placement a : {Placement::kDense, Placement::kPadded, Placement::kTransposed}) {
    for (Placement b : {Placement::kDense, Placement::kPadded, Placement::kTransposed}) {
      for (Placement d : {Placement::kDense, Placement::kPadded, Placement::kTransposed}) {
        MatmulCase c = Case(70, 50, 90, DType::kF32);
        c.a = a;
        c.b = b;
        c.d = d;
        Check(scene, c, "cpu_f32_blas");
      }
    }
  }
}

TEST(MatmulKernelsTest, HaveUniqueNames) {
  std::set<std::string> names;
  for (const MatmulKernel& kernel : MatmulKernels()) names.insert(std::string(kernel.name));
  EXPECT_EQ(names.size(), MatmulKernels().size());
}

}  // namespace
}  // namespace gemmd::kernels::cpu
