// Quantize across threads and blocks; its formula is held by the contract suite.

#include "gtest/gtest.h"
#include "kernels/cpu/ops/run_op.h"
#include "tests/kernels/contract/scene.h"

namespace gemmd::kernels::cpu {
namespace {

using contract::Bytes;
using contract::Scene;

TEST(QuantizeTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  Workers one(1);
  Workers many(5);
  Scratch scratch;
  for (ScaleGranularity granularity :
       {ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow, ScaleGranularity::kBlock1x128,
        ScaleGranularity::kBlock128x128}) {
    for (DType to : {DType::kE4M3, DType::kI8}) {
      Scene scene;
      const Dims shape = MakeDims({700, 1030});
      const QuantizeOp op{scene.Random(DType::kF32, shape), scene.Poisoned(to, shape),
                          scene.Poisoned(DType::kF32, ScaleShape(shape, granularity)), granularity};
      const Bindings bindings = scene.Reference();
      RunOp(op, {bindings, one, scratch});
      const std::vector<Bytes> first = scene.slots();
      RunOp(op, {bindings, many, scratch});
      EXPECT_TRUE(scene.slots() == first);
    }
  }
}

TEST(QuantizeTest, LeavesNoScalesForAMatrixWithoutColumns) {
  Workers workers(1);
  Scratch scratch;
  Scene scene(5);
  const Dims shape = MakeDims({3, 0});
  for (ScaleGranularity granularity :
       {ScaleGranularity::kPerTensor, ScaleGranularity::kPerRow, ScaleGranularity::kBlock1x128}) {
    const QuantizeOp op{scene.Poisoned(DType::kF32, shape), scene.Poisoned(DType::kE4M3, shape),
                        scene.Poisoned(DType::kF32, ScaleShape(shape, granularity)), granularity};
    RunOp(op, {scene.Reference(), workers, scratch});
    const contract::Outcome outcome{scene.slots(), {}, {}};
    for (double scale : Values(outcome, op.scales)) EXPECT_EQ(scale, 1);
  }
}

}  // namespace
}  // namespace gemmd::kernels::cpu
