#include "kernels/op.h"

#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/kernel.h"
#include "kernels/op_fields.h"
#include "kernels/other_kernels.h"

namespace gemmd::kernels {
namespace {

using testing::ElementsAre;

MatmulOp FullMatmul() {
  MatmulOp op;
  op.a = {Dense(0, DType::kE4M3, MakeDims({4, 256})), ScaleGranularity::kBlock1x128,
          Dense(1, DType::kF32, MakeDims({4, 2}))};
  op.b = {Dense(2, DType::kE4M3, MakeDims({8, 256}))};
  op.c = Dense(3, DType::kF32, MakeDims({4, 8}));
  op.bias = Dense(4, DType::kF32, MakeDims({8}));
  op.d = Dense(5, DType::kF32, MakeDims({4, 8}));
  return op;
}

TEST(OpTest, ScaleShapesRoundBlocksUp) {
  const Dims shape = MakeDims({129, 257});
  EXPECT_EQ(ScaleShape(shape, ScaleGranularity::kNone).rank, 0);
  EXPECT_EQ(ScaleShape(shape, ScaleGranularity::kPerTensor), MakeDims({1}));
  EXPECT_EQ(ScaleShape(shape, ScaleGranularity::kPerRow), MakeDims({129}));
  EXPECT_EQ(ScaleShape(shape, ScaleGranularity::kBlock1x128), MakeDims({129, 3}));
  EXPECT_EQ(ScaleShape(shape, ScaleGranularity::kBlock128x128), MakeDims({2, 3}));
}

TEST(OpTest, ScaleShapesKeepTheBatch) {
  const Dims shape = MakeDims({5, 129, 257});
  EXPECT_EQ(ScaleShape(shape, ScaleGranularity::kPerTensor), MakeDims({5, 1}));
  EXPECT_EQ(ScaleShape(shape, ScaleGranularity::kBlock128x128), MakeDims({5, 2, 3}));
}

template <size_t... i>
std::vector<Op> OneOfEach(std::index_sequence<i...>) {
  return {std::variant_alternative_t<i, Op>()...};
}

TEST(OpTest, EveryOpHasItsOwnName) {
  EXPECT_EQ(Name(Op(MatmulOp{})), "matmul");
  EXPECT_EQ(Name(Op(KGroupedMatmulOp{})), "k_grouped_matmul");
  EXPECT_EQ(Name(Op(NormalizeOp{})), "normalize");
  EXPECT_EQ(Name(Op(ChooseOp{})), "choose");
  std::set<std::string_view> names;
  for (const Op& op : OneOfEach(std::make_index_sequence<std::variant_size_v<Op>>())) {
    EXPECT_TRUE(names.insert(Name(op)).second) << Name(op);
  }
}

// Pools look kernels up by Op::index().
TEST(OpTest, OtherKernelsAreInOpsOrderBehindMatmul) {
  const std::vector<KernelInfo> kernels = OtherKernels("sm90");
  ASSERT_EQ(kernels.size() + 1, std::variant_size_v<Op>);
  for (const Op& op : OneOfEach(std::make_index_sequence<std::variant_size_v<Op>>())) {
    if (op.index() == 0) continue;
    EXPECT_EQ(kernels[op.index() - 1].name, "sm90_" + std::string(Name(op)));
    EXPECT_FALSE(kernels[op.index() - 1].description.empty());
  }
}

TEST(OpTest, TheMainTensorIsDstOrWhatIsReadFirst) {
  QuantizeOp quantize;
  quantize.src.slot = 1;
  quantize.dst.slot = 2;
  EXPECT_EQ(MainTensor(Op(quantize)).slot, 2);
  ReadOp read;
  read.src.slot = 3;
  EXPECT_EQ(MainTensor(Op(read)).slot, 3);
  RouteOp route;
  route.ids.slot = 4;
  EXPECT_EQ(MainTensor(Op(route)).slot, 4);
  EXPECT_EQ(MainTensor(Op(FullMatmul())).slot, 0);
}

TEST(OpTest, NumbersAreReadByOpsThatIndex) {
  EXPECT_TRUE(ReadsNumbers(Op(RouteOp{})));
  EXPECT_TRUE(ReadsNumbers(Op(CombineOp{})));
  EXPECT_TRUE(ReadsNumbers(Op(GroupedMatmulOp{})));
  EXPECT_TRUE(ReadsNumbers(Op(KGroupedMatmulOp{})));
  EXPECT_FALSE(ReadsNumbers(Op(ChooseOp{}))) << "it writes them";
  EXPECT_FALSE(ReadsNumbers(Op(FullMatmul())));
  QuantizeOp quantize;
  EXPECT_FALSE(ReadsNumbers(Op(quantize)));
  quantize.rows.emplace();
  EXPECT_TRUE(ReadsNumbers(Op(quantize)));
}

TEST(OpTest, VisitsInputsBeforeOutputs) {
  std::vector<std::pair<int, Access>> seen;
  ForEachTensor(FullMatmul(), [&](const TensorRef& tensor, Access access) {
    seen.emplace_back(tensor.slot, access);
  });
  EXPECT_THAT(seen, ElementsAre(std::pair{0, Access::kRead}, std::pair{1, Access::kRead},
                                std::pair{2, Access::kRead}, std::pair{3, Access::kRead},
                                std::pair{4, Access::kRead}, std::pair{5, Access::kWrite}));
}

// Slots of the tensors that an op writes, in order.
std::vector<int> WrittenBy(const Op& op) {
  std::vector<int> written;
  ForEachTensor(op, [&](const TensorRef& tensor, Access access) {
    if (access == Access::kWrite) written.push_back(tensor.slot);
  });
  return written;
}

TEST(OpTest, AnOpWritesItsOutputs) {
  QuantizeOp quantize;
  quantize.src.slot = 5;
  quantize.dst.slot = 6;
  quantize.scales.slot = 7;
  EXPECT_THAT(WrittenBy(quantize), ElementsAre(6, 7));
  WriteOp write;
  write.dst.slot = 0;
  EXPECT_THAT(WrittenBy(write), ElementsAre(0));
}

TEST(OpTest, AGatedOpWritesItsScalesToo) {
  GatedOp gated;
  gated.src.slot = 1;
  gated.dst.slot = 2;
  EXPECT_THAT(WrittenBy(gated), ElementsAre(2));
  gated.scales.emplace().slot = 3;
  EXPECT_THAT(WrittenBy(gated), ElementsAre(2, 3));
}

TEST(OpTest, ANormReadsItsVectorsAndWritesItsScalesAndItsSum) {
  NormalizeOp normalize;
  normalize.src.slot = 1;
  normalize.dst.slot = 2;
  normalize.weight.emplace().slot = 4;
  normalize.bias.emplace().slot = 5;
  EXPECT_THAT(WrittenBy(normalize), ElementsAre(2));
  normalize.scales.emplace().slot = 3;
  EXPECT_THAT(WrittenBy(normalize), ElementsAre(2, 3));
  std::vector<int> seen;
  ForEachTensor(normalize, [&](const TensorRef& tensor, Access) { seen.push_back(tensor.slot); });
  EXPECT_THAT(seen, ElementsAre(1, 4, 5, 2, 3));
  normalize.addend.emplace().slot = 6;
  EXPECT_THAT(WrittenBy(normalize), ElementsAre(2, 3));
  normalize.sum.emplace().slot = 7;
  EXPECT_THAT(WrittenBy(normalize), ElementsAre(7, 2, 3));
  seen.clear();
  ForEachTensor(normalize, [&](const TensorRef& tensor, Access) { seen.push_back(tensor.slot); });
  EXPECT_THAT(seen, ElementsAre(1, 6, 4, 5, 7, 2, 3));
  EXPECT_EQ(MainTensor(Op(normalize)).slot, 2);
}

TEST(OpTest, AChoiceReadsItsBiasAndWritesExpertsAndWeights) {
  ChooseOp choose;
  choose.logits.slot = 1;
  choose.bias.emplace().slot = 2;
  choose.experts.slot = 3;
  choose.weights.slot = 4;
  EXPECT_THAT(WrittenBy(choose), ElementsAre(3, 4));
  std::vector<int> seen;
  ForEachTensor(choose, [&](const TensorRef& tensor, Access) { seen.push_back(tensor.slot); });
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(MainTensor(Op(choose)).slot, 1);
  EXPECT_EQ(Name(RouterScores::kSoftmax), "softmax");
  EXPECT_EQ(Name(RouterScores::kSigmoid), "sigmoid");
  EXPECT_EQ(Name(GroupScore::kMax), "max");
  EXPECT_EQ(Name(GroupScore::kTop2Sum), "top2_sum");
}

TEST(OpTest, EveryActivationHasItsOwnName) {
  EXPECT_EQ(Name(Activation::kNone), "none");
  EXPECT_EQ(Name(Activation::kRelu), "relu");
  EXPECT_EQ(Name(Activation::kSilu), "silu");
  EXPECT_EQ(Name(Activation::kGeluTanh), "gelu_tanh");
  EXPECT_EQ(Name(Activation::kGeluErf), "gelu_erf");
  EXPECT_EQ(Name(Activation::kReluSquared), "relu_squared");
}

TEST(OpTest, CountsFlopsAndBytes) {
  const Op op = FullMatmul();  // beta 0: c is not read
  EXPECT_EQ(Flops(op), 2.0 * 4 * 8 * 256);
  EXPECT_EQ(Bytes(op), 4 * 256 + 4 * 2 * 4 + 8 * 256 + 8 * 4 + 4 * 8 * 4);
}

TEST(KernelTest, EveryChoiceReasonHasAName) {
  EXPECT_EQ(Name(ChoiceReason::kTable), "table");
  EXPECT_EQ(Name(ChoiceReason::kTuned), "tuned");
  EXPECT_EQ(Name(ChoiceReason::kModel), "model");
  EXPECT_EQ(Name(ChoiceReason::kForced), "forced");
  EXPECT_EQ(Name(ChoiceReason::kFallback), "fallback");
  EXPECT_EQ(Name(ChoiceReason::kOnly), "only");
}

}  // namespace
}  // namespace gemmd::kernels
